"""What a stream that Spark closed looks like to a feed task. The real thing is tests/spark/test_feed_sources.py."""

from __future__ import annotations

import socket
import struct
import types
from collections.abc import Callable
from typing import Any

from tfos_core.feed.upstream import broke_off

END_OF_STREAM = struct.pack("!i", -4)


def worker_main(module: str) -> Callable[[Any, Callable[[], bool]], bool]:
    """A function as Spark's Python worker has it: `main`, with the stream in `infile`."""

    def main(infile: Any, body: Callable[[], bool]) -> bool:
        return body()

    return types.FunctionType(main.__code__, {"__name__": module})


def asked_after(sent: bytes, module: str = "pyspark.worker") -> tuple[bool, bytes]:
    """What is said when Spark has sent so much and closed the stream, and what is left to read then."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as stream:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return worker_main(module)(stream, broke_off), stream.read()


def test_a_stream_with_an_end_mark_ended_and_the_mark_is_left_for_spark() -> None:
    assert asked_after(END_OF_STREAM) == (False, END_OF_STREAM)


def test_a_closed_stream_without_an_end_mark_broke_off() -> None:
    assert asked_after(b"") == (True, b"")


def test_rows_that_a_function_left_unread_are_no_reason_to_fail() -> None:
    assert asked_after(b"another batch") == (False, b"another batch")


def test_outside_of_a_spark_task_nothing_broke_off() -> None:
    assert not broke_off()
    assert asked_after(b"", module="another.program") == (False, b"")
