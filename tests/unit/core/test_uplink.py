"""The record of a driver on the cluster, and the live connection beside it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfos_cli.remote.link import Link
from tfos_cli.remote.local_copy import LocalCopy
from tfos_cli.runs import Run, RunStore
from tfos_core.reservation.handshake import new_secret
from tfos_core.shim.redaction import Redactor
from tfos_core.uplink.folder import StorageFolder
from tfos_core.uplink.hadoop_folder import open_folder
from tfos_core.uplink.journal import CANCEL_FILE, JournalReader, decode_part, encode_part, part_name
from tfos_core.uplink.live import LiveLine
from tfos_core.uplink.private import Private
from tfos_core.uplink.uplink import Uplink, flush_interval_s

DEADLINE_S = 30.0


def event(kind: str = "warning", **fields: object) -> str:
    return json.dumps({"v": 1, "ts": 1.0, "event": kind, **fields}, separators=(",", ":"))


class Bench:
    """A link that listens, and what it was told."""

    def __init__(self, tmp_path: Path) -> None:
        self.run: Run = RunStore(folder=tmp_path / "runs").create("job", master="yarn")
        self.folder = StorageFolder(f"file://{tmp_path}/record")
        self.folder.make()
        self.lines: list[str] = []
        self.changed = threading.Condition()
        self.copy = LocalCopy(self.run.folder, Redactor(()))
        self.link = Link(
            self.folder, self.copy, towards="127.0.0.1", environ={}, on_connected=lambda: None, on_line=self._take, on_say=print
        )

    def _take(self, line: str) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE_S), self.lines


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.copy, made.link:
        yield made


def test_parts_of_a_record_are_read_once_and_from_a_position(tmp_path: Path) -> None:
    folder = StorageFolder(str(tmp_path / "r"))
    assert folder.names() == []
    folder.make()
    assert folder.get("nothing") is None
    reader = JournalReader(folder)
    assert reader.read() == []
    for first, last in ((1, 3), (4, 4), (7, 9)):
        folder.put(part_name(first), encode_part((number, f"line {number}\tä") for number in range(first, last + 1)))
    folder.put("status.json", b"{}")
    assert [number for number, _ in reader.read()] == [1, 2, 3, 4, 7, 8, 9]
    assert reader.read() == []
    assert [number for number, _ in JournalReader(folder, position=8).read()] == [8, 9]
    assert JournalReader(folder, position=10).read() == []
    assert decode_part(b"damaged\n5\tfine\n\xff\t\n") == [(5, "fine")]
    folder.put(part_name(1), b"")
    assert folder.get(part_name(1)) == b""


def test_what_nobody_may_know_is_in_one_file_and_in_no_text_of_it(tmp_path: Path) -> None:
    private = Private(host="h", port=7, secret=new_secret(), values={"PASSWORD": "hunter2"})
    (tmp_path / "p").write_text(private.to_json())
    assert Private.read(tmp_path / "p") == private
    assert "hunter2" not in repr(private)
    for damaged in ("{}", '{"v": 9}', "no", '{"v": 1, "host": 1}'):
        (tmp_path / "p").write_text(damaged)
        with pytest.raises(ValueError, match=r"version|damaged|Expecting"):
            Private.read(tmp_path / "p")


@pytest.mark.parametrize(
    ("age", "live", "interval"), [(0, False, 1.0), (600, False, 6.0), (1e6, False, 60.0), (0, True, 10.0), (3600, True, 36.0)]
)
def test_a_record_of_a_long_run_has_fewer_parts(age: float, live: bool, interval: float) -> None:
    assert flush_interval_s(age, is_live=live) == interval


def test_a_day_is_told_in_about_two_thousand_parts() -> None:
    age, parts = 0.0, 0
    while age < 86400:
        age += flush_interval_s(age, is_live=False)
        parts += 1
    assert parts < 2100


def test_lines_go_over_the_connection_and_into_the_record(bench: Bench) -> None:
    live = LiveLine(*bench.link.address, bench.link.secret, on_shutdown=lambda _: None)
    uplink = Uplink(bench.folder, live, on_shutdown=lambda _: None)
    sent = [event(message=str(number)) for number in range(300)]
    for line in sent:
        uplink.send(line)
    bench.wait(lambda: len(bench.lines) == 300)
    uplink.close()
    assert bench.lines == sent
    assert [line for _, line in JournalReader(bench.folder).read()] == sent
    assert bench.run.events_path.read_text().splitlines() == sent


def test_a_request_to_end_reaches_the_driver_over_the_connection_and_through_the_record(bench: Bench) -> None:
    heard, found = threading.Event(), threading.Event()
    live = LiveLine(*bench.link.address, bench.link.secret, on_shutdown=lambda _: heard.set())
    alone = Uplink(bench.folder, None, on_shutdown=lambda _: found.set())
    assert bench.link.shut_down("enough")
    assert heard.wait(DEADLINE_S)
    assert found.wait(DEADLINE_S)
    assert json.loads(bench.folder.get(CANCEL_FILE) or b"")["reason"] == "enough"
    live.close()
    alone.close()


def test_who_does_not_know_the_secret_is_not_heard(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    stranger = LiveLine(*bench.link.address, new_secret(), on_shutdown=lambda _: None)
    stranger.offer(1, event("result"))
    stranger._thread.join(DEADLINE_S)
    assert not stranger._thread.is_alive(), "a wrong secret will not become right"
    assert bench.lines == []
    assert "no live connection" in caplog.text


def test_a_record_that_can_not_be_written_is_tried_again_and_loses_no_event(tmp_path: Path) -> None:
    folder = StorageFolder(str(tmp_path / "r"))
    (tmp_path / "r").write_text("in the way")
    uplink = Uplink(folder, None, on_shutdown=lambda _: None)
    uplink.send(event("driver_started"))
    uplink.send(event("result"))
    deadline = threading.Event()
    deadline.wait(0.5)  # it fails meanwhile, whether once or never
    (tmp_path / "r").unlink()
    folder.make()
    uplink.close()
    assert len(JournalReader(folder).read()) == 2


def test_a_place_on_this_machine_needs_no_jvm(tmp_path: Path) -> None:
    def no_jvm() -> tuple[object, object]:
        raise AssertionError

    folder = open_folder(f"file://{tmp_path}/r", no_jvm)
    folder.make()
    folder.put("a", b"1")
    assert folder.names() == ["a"]
