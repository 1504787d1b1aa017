"""Event files on their way from a node to the driver: what is new, what is let in, and what happens when it can not be kept."""

from __future__ import annotations

import base64
import os
import select
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testbed.clusters import Recorder
from testbed.waiting import poll_until

from tfos_core.errors import ChannelClosedError, ProtocolError
from tfos_core.tensorboard import EventFileFolder
from tfos_core.tensorboard.collector import Collector
from tfos_core.tensorboard.event_files import EventFiles, Piece
from tfos_core.tensorboard.folder import checked_path
from tfos_core.tensorboard.receiver import FileReceiver

NAME = "events.out.tfevents.1.host.2.v2"


def write(folder: Path, path: str, data: bytes, mode: str = "ab") -> Path:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open(mode) as file:
        file.write(data)
    return target


def files_of(folder: Path, *, piece_bytes: int = 4, limit_bytes: int = 1000) -> EventFiles:
    return EventFiles(folder, piece_bytes=piece_bytes, limit_bytes=limit_bytes)


def test_a_file_comes_in_pieces_and_then_only_what_was_added(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    write(tmp_path, f"train/{NAME}", b"0123456789")
    path = f"train/{NAME}"
    assert list(files.pending()) == [
        Piece(path=path, offset=0, data=b"0123"),
        Piece(path=path, offset=4, data=b"4567"),
        Piece(path=path, offset=8, data=b"89"),
    ]
    assert list(files.pending()) == []
    write(tmp_path, path, b"ab")
    assert list(files.pending()) == [Piece(path=path, offset=10, data=b"ab")]


def test_a_piece_that_was_not_delivered_comes_again(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    write(tmp_path, NAME, b"01234567")
    first = next(files.pending())
    assert next(files.pending()) == first
    assert files.pending_bytes() == 8


@pytest.mark.parametrize("how", ["shorter", "another file"])
def test_a_file_that_was_written_again_begins_anew(tmp_path: Path, how: str) -> None:
    files = files_of(tmp_path, piece_bytes=100)
    path = write(tmp_path, NAME, b"0123456789")
    assert [piece.offset for piece in files.pending()] == [0]
    if how == "another file":
        write(tmp_path, "new", b"another one").rename(path)
    else:
        write(tmp_path, NAME, b"short", "wb")
    assert list(files.pending()) == [Piece(path=NAME, offset=0, data=path.read_bytes())]


def test_files_of_an_earlier_run_are_left_out_unless_they_grow(tmp_path: Path) -> None:
    write(tmp_path, f"old/{NAME}", b"old")
    write(tmp_path, f"grows/{NAME}", b"old")
    files = files_of(tmp_path)
    write(tmp_path, f"grows/{NAME}", b"+")
    write(tmp_path, f"new/{NAME}", b"new")
    assert [(piece.path.partition("/")[0], piece.data) for piece in files.pending()] == [("grows", b"old+"), ("new", b"new")]


def test_only_plain_event_files_are_taken(tmp_path: Path) -> None:
    secret = write(tmp_path, "secret", b"password")
    folder = tmp_path / "logs"
    write(folder, "checkpoint", b"x")
    write(folder, f"bad\nname/{NAME}", b"x")
    (folder / f"link.{NAME}").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / f"fifo.{NAME}")
    assert list(files_of(folder).pending()) == []


def test_what_keras_will_throw_away_on_workers_is_not_collected_in_part(tmp_path: Path) -> None:
    write(tmp_path, f"workertemp_0/train/{NAME}", b"x")
    assert list(files_of(tmp_path).pending()) == []


def test_a_folder_that_is_not_there_has_nothing_to_send(tmp_path: Path) -> None:
    assert list(files_of(tmp_path / "nothing").pending()) == []


def test_no_more_than_the_limit_comes(tmp_path: Path) -> None:
    files = files_of(tmp_path, limit_bytes=10)
    write(tmp_path, NAME, bytes(20))
    assert [len(piece.data) for piece in files.pending()] == [4, 4]
    assert files.is_full


@pytest.mark.parametrize(
    "path",
    [
        "",
        NAME + "/",
        f"/etc/{NAME}",
        f"../{NAME}",
        f"a/../../{NAME}",
        f"a/./{NAME}",
        f"a//{NAME}",
        f"a\0/{NAME}",
        f"a\n/{NAME}",
        "train/model.h5",
        f"{'x' * 300}/{NAME}",
        f"{'x/' * 40}{NAME}",
        f"{'x' * 200}/" * 6 + NAME,
        None,
        7,
    ],
)
def test_a_path_that_leaves_its_folder_or_is_no_event_file_is_refused(path: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path|folder|name"):
        checked_path(path)
    with pytest.raises(ValueError, match=r"path|folder|name"):
        EventFileFolder(tmp_path / "in")("worker:0", path, 0, b"x")
    assert list(tmp_path.rglob("*tfevents*")) == []


@pytest.mark.parametrize("node", ["../x", "worker", "worker:", "a/b:0", ""])
def test_a_name_that_no_node_has_is_refused(node: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not the name of a node"):
        EventFileFolder(tmp_path)(node, NAME, 0, b"x")


def test_pieces_become_files_that_only_this_user_can_read(tmp_path: Path) -> None:
    folder = EventFileFolder(tmp_path / "tensorboard")
    assert not (tmp_path / "tensorboard").exists()
    for offset, data in ((0, b"0123"), (4, b"4567"), (0, b"new"), (3, b"er")):
        folder("worker:1", f"train/{NAME}", offset, data)
    target = tmp_path / "tensorboard" / "worker-1" / "train" / NAME
    assert target.read_bytes() == b"newer"
    assert (target.stat().st_mode & 0o777, target.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(ValueError, match="hole"):
        folder("worker:1", f"train/{NAME}", 9, b"x")


def test_links_in_the_folder_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    node = tmp_path / "tensorboard" / "worker-0"
    node.mkdir(parents=True)
    (node / "train").symlink_to(outside)
    (node / NAME).symlink_to(outside / "target")
    with pytest.raises(ValueError, match="leads out of"):
        EventFileFolder(tmp_path / "tensorboard")("worker:0", f"train/{NAME}", 0, b"x")
    with pytest.raises(OSError, match="symbolic link"):
        EventFileFolder(tmp_path / "tensorboard")("worker:0", NAME, 0, b"x")
    assert list(outside.iterdir()) == []


class Wire:
    """Carries messages between a collector and a receiver, in JSON's types."""

    def __init__(self, sink: Callable[[str, str, int, bytes], None]) -> None:
        self.events = Recorder()
        self.receiver = FileReceiver(sink, self._to_node, self.events)
        self.collector: Collector | None = None
        self.messages: list[Mapping[str, Any]] = []
        self.receiver.start()

    def to_driver(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)
        if message["op"].startswith("files."):
            self.receiver.handle("worker:0", message)

    def _to_node(self, node: str, message: Mapping[str, Any]) -> None:
        if self.collector is None:
            raise ChannelClosedError(f"node {node} is not connected to the driver")
        self.collector.on_message(message)

    def collect(self, folder: Path, **settings: Any) -> Collector:
        settings = {"interval_s": 0.02} | settings
        self.collector = Collector(folder, node="worker:0", send=self.to_driver, **settings)
        self.collector.start()
        return self.collector

    def wait_over(self) -> None:
        assert self.collector is not None
        assert select.select([self.collector], [], [], 20)[0]
        assert self.collector.is_over

    def close(self) -> None:
        if self.collector is not None:
            self.collector.close()
        self.receiver.close()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    wire = Wire(EventFileFolder(tmp_path / "record"))
    yield wire
    wire.close()


def test_what_a_node_writes_is_on_the_driver_while_it_runs_and_at_its_end(wire: Wire, tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "record" / "worker-0" / "train" / NAME
    collector = wire.collect(logs)
    big = os.urandom(300_000)
    write(logs, f"train/{NAME}", big)
    poll_until(lambda: target.exists() and target.read_bytes() == big, 20, what="the first part is there")
    write(logs, f"train/{NAME}", b"the end")
    collector.finish()
    wire.wait_over()
    assert wire.receiver.wait_done(["worker:0"], 20, is_over=lambda: False)
    assert target.read_bytes() == big + b"the end"
    assert collector.left_behind() == ""
    assert sum(len(message.get("data", "")) for message in wire.messages) < 1.4 * len(big)


def test_the_last_round_does_not_wait_for_the_interval(wire: Wire, tmp_path: Path) -> None:
    collector = wire.collect(tmp_path / "logs", interval_s=3600)
    write(tmp_path / "logs", NAME, b"x")
    collector.finish()
    wire.wait_over()
    assert wire.receiver.wait_done(["worker:0"], 20, is_over=lambda: False)
    assert (tmp_path / "record" / "worker-0" / NAME).read_bytes() == b"x"


def test_a_node_over_the_limit_says_so_and_stops(wire: Wire, tmp_path: Path) -> None:
    write(tmp_path / "logs", "keep", b"")
    wire.collect(tmp_path / "logs", limit_bytes=10)
    write(tmp_path / "logs", NAME, bytes(11))
    wire.wait_over()
    (warning,) = [message for message in wire.messages if message["op"] == "node.warning"]
    assert warning["id"] == "tensorboard-collect"
    assert str(tmp_path / "logs") in warning["message"]


def test_a_disk_that_is_full_is_one_warning_and_ends_the_collecting(tmp_path: Path) -> None:
    def full(node: str, path: str, offset: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    wire = Wire(full)
    try:
        wire.collect(tmp_path)
        write(tmp_path, NAME, bytes(1000))
        wire.wait_over()
        assert "No space left on device" in wire.events.wait_for("warning").message
        assert len(wire.events.all("warning")) == 1
        assert wire.collector is not None
        assert "1000 bytes of the event files of worker:0 were not collected" in wire.collector.left_behind()
    finally:
        wire.close()


@pytest.mark.parametrize("bad", [{"data": "%%"}, {"path": "../x.tfevents"}, {"offset": "x"}, {"path": None}])
def test_a_bad_piece_is_refused_with_a_warning(wire: Wire, bad: dict[str, Any], tmp_path: Path) -> None:
    piece = {"op": "files.piece", "path": NAME, "offset": 0, "data": base64.b64encode(b"x").decode()}
    wire.receiver.handle("worker:0", piece | bad)
    assert wire.events.wait_for("warning", 20).id == "tensorboard-collect"
    wire.receiver.handle("worker:0", piece)
    wire.receiver.close()
    assert not (tmp_path / "record" / "worker-0" / NAME).exists()


def test_a_node_that_does_not_wait_for_answers_is_a_broken_peer() -> None:
    goes_on = threading.Event()
    receiver = FileReceiver(lambda *piece: goes_on.wait(20) or None, lambda node, message: None, lambda event: None)
    receiver.start()
    piece = {"op": "files.piece", "path": NAME, "offset": 0, "data": ""}
    receiver.handle("worker:0", piece)
    receiver.handle("worker:0", piece)
    with pytest.raises(ProtocolError, match="without waiting for the answers"):
        receiver.handle("worker:0", piece)
    receiver.handle("worker:1", piece)
    goes_on.set()
    receiver.close()


def test_waiting_for_the_rest_ends_with_the_node_or_the_run(wire: Wire) -> None:
    wire.receiver.handle("worker:0", {"op": "files.begin"})
    assert not wire.receiver.wait_done(["worker:0"], 20, is_over=lambda: True)
    wire.receiver.gone("worker:0")
    assert wire.receiver.wait_done(["worker:0"], 20, is_over=lambda: False)
