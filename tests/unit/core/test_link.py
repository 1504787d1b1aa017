from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator

import pytest

from tfos_core.errors import ChannelClosedError
from tfos_core.link import Link, link_pair

WAIT_S = 20.0


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    here, fd = link_pair()
    there = Link(fd)
    yield here, there
    here.close()
    there.close()


def test_messages_and_bytes_arrive_in_order(ends: tuple[Link, Link]) -> None:
    here, there = ends
    assert not there.wait(0)
    here.send({"op": "hello", "text": "caf\xe9 \udcff"})
    here.send_bytes(b"\0\xff" * 1000)
    here.send({})
    assert there.wait(WAIT_S)
    assert there.receive() == {"op": "hello", "text": "caf\xe9 \udcff"}
    assert there.receive_bytes() == b"\0\xff" * 1000
    assert there.receive() == {}


def test_the_end_of_the_other_process_is_an_error_for_both_directions(ends: tuple[Link, Link]) -> None:
    here, there = ends
    there.send({"op": "last"})
    there.close()
    there.close()
    assert here.receive() == {"op": "last"}
    with pytest.raises(ChannelClosedError, match="has ended"):
        here.receive()
    with pytest.raises(ChannelClosedError, match="is gone"):
        here.send({"op": "x"})
    with pytest.raises(ChannelClosedError):
        there.wait(0)


@pytest.mark.parametrize("said", [b"not JSON", b"\xff\xfe", b"[1]", b'{"op": 3}'])
def test_what_is_no_message_ends_the_conversation(ends: tuple[Link, Link], said: bytes) -> None:
    here, there = ends
    here.send_bytes(said)
    with pytest.raises(ChannelClosedError, match=r"no message|JSON object"):
        there.receive()


def test_a_print_into_the_link_is_not_waited_for(ends: tuple[Link, Link]) -> None:
    here, there = ends
    # As a length these letters announce 1.2 GB.
    os.write(here.fileno(), b"Hello, world\n")
    with pytest.raises(ChannelClosedError):
        there.receive()
    with pytest.raises(ChannelClosedError):
        there.receive()


def test_half_a_message_is_an_end(ends: tuple[Link, Link]) -> None:
    here, there = ends
    os.write(here.fileno(), struct.pack("!i", 100) + b"half")
    here.close()
    with pytest.raises(ChannelClosedError):
        there.receive()


def test_hanging_up_wakes_a_thread_that_sends_to_a_peer_which_does_not_read(ends: tuple[Link, Link]) -> None:
    here, _ = ends
    errors: list[Exception] = []
    blocked = threading.Event()

    def send() -> None:
        blocked.set()
        try:
            here.send_bytes(b"x" * 10_000_000)
        except ChannelClosedError as exc:
            errors.append(exc)

    thread = threading.Thread(target=send)
    thread.start()
    assert blocked.wait(WAIT_S)
    here.hang_up()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert errors
    here.hang_up()
    here.close()
    here.hang_up()
