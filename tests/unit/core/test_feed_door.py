from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import pytest

from tfos_core.errors import ConfigError, FeedError
from tfos_core.feed import rendezvous
from tfos_core.feed.door import FeedDoor


def environ(tmp_path: Path) -> dict[str, str]:
    return {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": "/a"}


def descriptors() -> int:
    gc.collect()  # what earlier tests left as garbage must not be closed between two counts
    return len(list(Path("/dev/fd").iterdir()))


def test_an_open_door_is_found_and_a_closed_one_leaves_nothing(tmp_path: Path) -> None:
    before = descriptors()
    door = FeedDoor(node="worker:0", generation="g", environ=environ(tmp_path))
    found = rendezvous.Descriptor.read(rendezvous.executor_folder(environ(tmp_path)))
    assert (found.node, found.generation, found.supervisor_pid, found.progress) == (
        "worker:0",
        "g",
        os.getpid(),
        door.progress_path,
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(found.socket)
    door.close()
    assert list(tmp_path.iterdir()) == []
    assert descriptors() == before


def test_an_executor_serves_one_node(tmp_path: Path) -> None:
    door = FeedDoor(node="worker:0", generation="g", environ=environ(tmp_path))
    with pytest.raises(ConfigError, match="already serves worker:0 of cluster g, so worker:1 can not be there") as caught:
        FeedDoor(node="worker:1", generation="g", environ=environ(tmp_path))
    assert "spark.task.cpus" in str(caught.value.hint)
    assert rendezvous.executor_folder(environ(tmp_path)).exists(), "the first one's"
    door.close()


def test_a_door_that_can_not_be_opened_leaves_no_folder_and_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: rendezvous.Descriptor, folder: Path) -> None:
        raise OSError("disk full")

    before = descriptors()
    monkeypatch.setattr(rendezvous.Descriptor, "write", fail)
    with pytest.raises(OSError, match="disk full"):
        FeedDoor(node="worker:0", generation="g", environ=environ(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert descriptors() == before


def test_a_process_of_no_executor_opens_no_door(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="SPARK_LOCAL_DIRS is not set"):
        FeedDoor(node="worker:0", generation="g", environ={"TMPDIR": str(tmp_path)})
