"""The private channel between follower and shim: who may speak on it, and what happens when one end goes away."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfos_cli.channel import ChannelServer, private_folder
from tfos_core.errors import ChannelClosedError, EnvironmentCheckError
from tfos_core.shim.channel import ChannelDescriptor, FollowerChannel


class Ends:
    """A server whose callbacks go into a queue, and a way to connect to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.happened: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.descriptor_path = tmp_path / "channel.json"
        self.server = ChannelServer(
            self.descriptor_path,
            on_connected=lambda: self.happened.put(("connected", "")),
            on_line=lambda line: self.happened.put(("line", line)),
            on_closed=lambda: self.happened.put(("closed", "")),
            on_stranger=lambda reason: self.happened.put(("stranger", reason)),
            environ={"TMPDIR": str(tmp_path)},
        )
        self.shutdowns: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.closed = threading.Event()

    def next(self) -> tuple[str, str]:
        return self.happened.get(timeout=10)

    def descriptor(self) -> ChannelDescriptor:
        return ChannelDescriptor.read(self.descriptor_path)

    def connect(self, descriptor: ChannelDescriptor | None = None) -> FollowerChannel:
        return FollowerChannel(descriptor or self.descriptor(), on_shutdown=self.shutdowns.put, on_closed=self.closed.set)

    def stranger(self, data: bytes) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(self.descriptor().socket)
        connection.sendall(data)
        return connection


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    ends = Ends(tmp_path)
    with ends.server:
        yield ends


def test_events_go_one_way_and_shutdown_the_other(ends: Ends) -> None:
    channel = ends.connect()
    assert ends.next() == ("connected", "")
    channel.send('{"event":"a"}')
    assert ends.next() == ("line", '{"event":"a"}')
    assert ends.server.shut_down("enough")
    assert ends.shutdowns.get(timeout=10) == "enough"
    channel.close()
    assert ends.next() == ("closed", "")
    assert not ends.closed.is_set()


def test_socket_and_descriptor_are_private_and_go_away(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    with ends.server:
        path = Path(ends.descriptor().socket)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert ends.descriptor_path.stat().st_mode & 0o777 == 0o600
        assert len(str(path)) < 107
    assert not path.parent.exists()
    assert not ends.descriptor_path.exists()
    assert [thread for thread in threading.enumerate() if thread.name == "tfos-channel"] == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"op":"hello","token":"0000"}\n', "wrong token"),
        (b'{"op":"hello"}\n', "wrong token"),
        (b"[]\n", "wrong token"),
        (b'{"op":"hello","token":7}\n', "wrong token"),
        ('{"op":"hello","token":"\u00e9"}\n'.encode(), "wrong token"),
        (b"GET / HTTP/1.1\r\n\n", "not JSON"),
        (b"\xff\xfe\x00\n", "not JSON"),
        (b"x" * 5000, "not JSON"),
    ],
)
def test_a_stranger_is_sent_away_and_the_run_goes_on(ends: Ends, data: bytes, reason: str) -> None:
    channel = ends.connect()
    assert ends.next() == ("connected", "")
    with ends.stranger(data) as stranger:
        kind, said = ends.next()
        assert kind == "stranger"
        assert reason in said
        with contextlib.suppress(ConnectionResetError):  # closed with our bytes unread
            assert stranger.recv(1) == b""
    channel.send('{"event":"b"}')
    assert ends.next() == ("line", '{"event":"b"}')
    channel.close()


def test_a_stranger_that_hangs_up_or_says_nothing_does_not_keep_the_shim_out(ends: Ends) -> None:
    ends.stranger(b"").close()
    assert ends.next()[0] == "stranger"
    with ends.stranger(b'{"op"'):
        channel = ends.connect()
        assert ends.next() == ("connected", "")
        channel.close()


def test_a_second_driver_with_the_right_token_is_refused(ends: Ends) -> None:
    first = ends.connect()
    assert ends.next() == ("connected", "")
    second = ends.connect()
    assert ends.next() == ("stranger", "there is a driver already")
    assert ends.closed.wait(10)
    second.close()
    first.send("{}")
    assert ends.next() == ("line", "{}")
    first.close()


def test_a_broken_token_ends_the_job_of_the_shim(ends: Ends) -> None:
    channel = ends.connect(ChannelDescriptor(socket=ends.descriptor().socket, token="0" * 64))
    assert ends.next()[0] == "stranger"
    assert ends.closed.wait(10)
    channel.close()


def test_the_shim_hears_at_once_that_its_follower_is_gone(tmp_path: Path) -> None:
    ends = Ends(tmp_path)
    with ends.server:
        channel = ends.connect()
        assert ends.next() == ("connected", "")
    assert ends.closed.wait(10)
    channel.send("{}")
    channel.close()


def test_without_a_follower_the_shim_gets_an_error_that_says_so(tmp_path: Path) -> None:
    descriptor = ChannelDescriptor(socket=str(tmp_path / "none.sock"), token="t")
    with pytest.raises(ChannelClosedError, match=r"does not answer at .*none\.sock"):
        FollowerChannel(descriptor, on_shutdown=print, on_closed=lambda: None)


def test_a_follower_that_does_not_read_never_makes_the_job_wait(tmp_path: Path) -> None:
    path = tmp_path / "stuck.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        channel = FollowerChannel(ChannelDescriptor(socket=str(path), token="t"), on_shutdown=print, on_closed=lambda: None)
        line = json.dumps({"event": "x", "text": "y" * 1000})
        for _ in range(20_000):
            channel.send(line)
        channel.close(timeout=0.2)


def test_shutdown_without_a_driver_says_that_nobody_heard_it(ends: Ends) -> None:
    assert not ends.server.shut_down("enough")


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"tfos-{os.getuid()}"
    folder.mkdir(mode=0o755)
    with pytest.raises(EnvironmentCheckError, match="only you"):
        private_folder({"TMPDIR": str(tmp_path)})


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"tfos-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentCheckError, match="only you"):
        private_folder({"TMPDIR": str(tmp_path)})


def test_a_temporary_folder_that_is_too_long_for_a_socket_is_replaced(tmp_path: Path) -> None:
    folder = private_folder({"TMPDIR": str(tmp_path / ("x" * 120))})
    try:
        assert folder == Path(f"/tmp/tfos-{os.getuid()}")
    finally:
        _remove_if_empty(folder.rmdir)


def _remove_if_empty(remove: Callable[[], None]) -> None:
    try:
        remove()
    except OSError:
        return  # somebody uses it
