from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfos_core import output
from tfos_core.output import OutputRelay
from tfos_core.settings import KEPT_OUTPUT_LINES, OUTPUT_LINES_PER_SECOND


class Bench:
    """A relay on a pipe, and what it sent."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self.sent: list[tuple[list[str], int]] = []
        reading, self.writing = os.pipe()
        self.copy_ends: list[str] = []
        self.relay = OutputRelay(
            reading, copy, lambda lines, dropped: self.sent.append((lines, dropped)), on_copy_end=self.copy_ends.append
        )

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)
        assert self.relay.read()

    @property
    def lines(self) -> list[str]:
        return [line for lines, _ in self.sent for line in lines]

    def close(self) -> None:
        self.relay.close()
        os.close(self.writing)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "copy.log")
    yield made
    made.close()


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def test_bytes_become_lines_however_they_are_cut(bench: Bench) -> None:
    bench.write(b"one\ntw")
    bench.write(b"o\r\n\nthree")
    assert bench.lines == ["one", "two", ""]
    bench.relay.drain()
    assert bench.lines == ["one", "two", "", "three"]
    assert bench.copy.read_bytes() == b"one\ntwo\r\n\nthree"


def test_an_empty_pipe_is_not_the_end_of_it(bench: Bench) -> None:
    assert bench.relay.read()
    os.close(bench.writing)
    assert not bench.relay.read()
    bench.relay.drain()
    bench.writing = os.open(os.devnull, os.O_WRONLY)


def test_bytes_that_are_no_utf8_are_shown_as_such(bench: Bench) -> None:
    bench.write(b"caf\xe9 \xff\xfe\n")
    assert bench.lines == ["caf\ufffd \ufffd\ufffd"]
    assert bench.copy.read_bytes() == b"caf\xe9 \xff\xfe\n"


def test_a_line_without_an_end_does_not_grow_in_memory(bench: Bench) -> None:
    for _ in range(10):
        bench.write(b"x" * 60_000)
    bench.write(b"\nnext\n")
    assert max(map(len, bench.lines)) == 8 * 1024
    assert bench.lines[-1] == "next"
    assert bench.copy.stat().st_size == 600_006


def test_too_many_lines_are_counted_where_they_are_missing(bench: Bench, frozen: list[float]) -> None:
    most = OUTPUT_LINES_PER_SECOND
    bench.relay._allowed_at = frozen[0]
    bench.write(b"".join(b"%d\n" % number for number in range(most + 100)))
    bench.write(b"lost\n")
    assert bench.sent == [([str(number) for number in range(most)], 0)]
    frozen[0] += 1
    bench.write(b"later\n")
    assert bench.sent[1:] == [(["later"], 101)]
    assert list(bench.relay.last_lines)[-2:] == ["lost", "later"]
    assert len(bench.relay.last_lines) == KEPT_OUTPUT_LINES


def test_lines_left_out_at_the_very_end_are_told(bench: Bench, frozen: list[float]) -> None:
    bench.relay._allowed_at = frozen[0]
    bench.write(b"x\n" * (OUTPUT_LINES_PER_SECOND + 7))
    bench.relay.drain()
    assert bench.sent[-1] == ([], 7)
    bench.relay.drain()
    assert len(bench.sent) == 2


def test_draining_does_not_wait_for_others_that_hold_the_pipe(bench: Bench) -> None:
    os.write(bench.writing, b"x\n" * 30_000)
    bench.relay.drain()
    assert bench.copy.stat().st_size == 60_000


def test_a_copy_that_can_not_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for copy in (tmp_path / "missing" / "copy.log", Path("/dev/full")):
        bench = Bench(copy)
        bench.write(b"one\n")
        bench.write(b"two\n")
        assert bench.sent == [(["one"], 0), (["two"], 0)]
        # Told once, when there is somebody to tell.
        assert len(bench.copy_ends) == 1 and "No " in bench.copy_ends[0]
        bench.close()
    assert caplog.text.count("no more output is copied") == 2


def test_lines_of_the_supervisor_come_between_those_of_the_process(bench: Bench) -> None:
    bench.write(b"one\ntw")
    bench.relay.add("[tfos] where it is:\n  here\n")
    bench.write(b"three\n")
    assert bench.lines == ["one", "tw", "[tfos] where it is:", "  here", "three"]
    assert bench.copy.read_bytes() == b"one\ntw\n[tfos] where it is:\n  here\nthree\n"
