"""Functions that answer rows on the nodes of test clusters; executors import them by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ("DieOnce", "answer", "answer_too_few", "echo_fat", "itself", "never_answer", "take_lengths", "without_bytes")


def answer(args: Any, ctx: Any) -> None:
    """A dict for every row of a DataFrame with the column `a`."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        rows = feed.next_batch(7)
        feed.batch_results([{"a": row[1], "square": row[1] ** 2, "batch": len(rows)} for row in rows])


def answer_too_few(args: Any, ctx: Any) -> None:
    """One result is missing in every batch."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        feed.batch_results(feed.next_batch(10)[1:])


def echo_fat(args: Any, ctx: Any) -> None:
    """Every row with as many bytes as `args["bytes"]`, and the size of its batch."""
    feed = ctx.get_data_feed(train_mode=False)
    fat = b"x" * args["bytes"]
    while not feed.should_stop():
        rows = feed.next_batch(args["batch_size"])
        feed.batch_results([(row, fat, len(rows)) for row in rows])


def take_lengths(args: Any, ctx: Any) -> None:
    """Type and length of the bytes in the first column."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        feed.batch_results([(type(row[0]).__name__, None if row[0] is None else len(row[0])) for row in feed.next_batch(4)])


def never_answer(args: Any, ctx: Any) -> None:
    """Takes rows and then computes for ever."""
    feed = ctx.get_data_feed(train_mode=False)
    feed.next_batch(10)
    threading.Event().wait()


def itself(rows: list[Any]) -> list[Any]:
    """For `flatMap`: a partition of one element becomes one of the element's."""
    return rows


def without_bytes(answer: tuple[Any, bytes, int]) -> tuple[Any, int, int]:
    """What `echo_fat` gave, with the number of bytes only."""
    row, fat, batch = answer
    return row, len(fat), batch


class DieOnce:
    """For `mapInArrow`: kills the Python worker of partition 1 in its first attempt, and leaves a file."""

    def __init__(self, marker: str) -> None:
        self.marker = Path(marker)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and not self.marker.exists():
            self.marker.touch()
            os._exit(9)
        yield from batches
