"""When a node last consumed a row: where that lies, and who can read it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfos_core.feed import rendezvous
from tfos_core.feed.door import FeedDoor
from tfos_core.feed.progress import ProgressReader, ProgressWriter, offer_memory

needs_memory = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd_create here")


def environ(tmp_path: Path) -> dict[str, str]:
    return {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": "/a"}


def told(tmp_path: Path) -> Path:
    """Where a feed task is told to look."""
    return Path(rendezvous.Descriptor.read(rendezvous.executor_folder(environ(tmp_path))).progress)


def elsewhere(code: str) -> str:
    """What a process prints that runs the code, in which Path, ProgressReader and ProgressWriter are known."""
    head = "from pathlib import Path; from tfos_core.feed.progress import *; "
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def advance_elsewhere(path: Path) -> None:
    """What a node's process does."""
    elsewhere(f"ProgressWriter(Path({str(path)!r})).advance(3)")


@needs_memory
def test_a_node_stores_to_memory_that_other_processes_read_and_that_ends_with_the_supervisor(tmp_path: Path) -> None:
    door = FeedDoor(node="worker:0", generation="g", environ=environ(tmp_path))
    path = told(tmp_path)
    assert str(path.readlink().readlink()).startswith("/memfd:")
    reader = ProgressReader(path)
    assert reader.last_consumed() == 0.0
    # Two processes, one after the other: what the first one stored is there when it has ended.
    advance_elsewhere(path)
    first = reader.last_consumed()
    assert first > 0.0
    advance_elsewhere(path)
    assert reader.last_consumed() > first
    assert str(path.readlink().readlink()).startswith("/memfd:"), "no file took its place"
    door.close()
    reader.close()
    assert ProgressReader(path).last_consumed() == 0.0
    assert list(tmp_path.iterdir()) == []


@needs_memory
def test_the_memory_is_for_processes_that_look_for_it(tmp_path: Path) -> None:
    descriptor = offer_memory(tmp_path / "progress")
    assert descriptor is not None
    assert not os.get_inheritable(descriptor)
    assert os.fstat(descriptor).st_size == 16
    os.close(descriptor)


@pytest.mark.parametrize("why", ["no call", "no memory", "no link"])
def test_without_such_memory_there_is_a_file(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    gc.collect()  # what earlier tests left as garbage must not be closed between two counts
    before = len(list(Path("/dev/fd").iterdir()))
    if why == "no call":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif why == "no memory":
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    else:
        monkeypatch.setattr(Path, "symlink_to", refuse)
    door = FeedDoor(node="worker:0", generation="g", environ=environ(tmp_path))
    path = told(tmp_path)
    assert ProgressReader(path).last_consumed() == 0.0
    advance_elsewhere(path)
    reader = ProgressReader(path)
    assert reader.last_consumed() > 0.0
    assert path.is_file()
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    reader.close()
    door.close()
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/dev/fd").iterdir())) == before


@needs_memory
def test_pids_of_another_proc_lead_to_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the parent, as where /proc is that of other pids.
    monkeypatch.setattr(os, "getpid", os.getppid)
    assert offer_memory(tmp_path / "progress") is None
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_may_not_have_the_memory_makes_a_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    path.symlink_to("/proc/self/fd/999999")
    writer, reader = ProgressWriter(path, clock=lambda: 5.0), ProgressReader(path)
    writer.advance(1)
    assert reader.last_consumed() == 5.0
    assert not path.is_symlink()
    reader.close()
    writer.close()


def test_a_link_that_leads_to_something_else_says_nothing_and_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "progress").symlink_to(tmp_path / "pipe")
    assert elsewhere(f"print(ProgressReader(Path({str(tmp_path / 'progress')!r})).last_consumed())") == "0.0"
