"""Event files of a node appear in storage that TensorFlow does not write to."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from testbed.waiting import poll_until

from tfos_core.tensorboard.mirror import Mirror

LONGEST_S = 30.0


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


class Sent:
    """What was sent to the driver."""

    def __init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = []
        self.arrived = threading.Event()

    def __call__(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)
        self.arrived.set()


def mirror(folder: Path, target: str, sent: Sent, interval_s: float = 3600, **more: Any) -> Mirror:
    return Mirror(folder, target, node="chief:0", send=sent, interval_s=interval_s, **more)


def is_over(mirror: Mirror) -> bool:
    return bool(select.select([mirror], [], [], LONGEST_S)[0]) and mirror.is_over


def test_files_are_copied_while_they_grow_and_at_the_end(tmp_path: Path, memory: Any) -> None:
    sent = Sent()
    mirrored = mirror(tmp_path / "logs", "memory://logs/chief-0", sent, interval_s=0.01)
    mirrored.start()
    (tmp_path / "logs" / "train").mkdir(parents=True)
    file = tmp_path / "logs" / "train" / "events.out.tfevents.1"
    file.write_bytes(b"1")
    (tmp_path / "logs" / "other").write_bytes(b"x")
    name = "/logs/chief-0/train/events.out.tfevents.1"
    poll_until(lambda: memory.exists(name) and memory.cat(name) == b"1", LONGEST_S, what="the first copy")
    file.write_bytes(b"12")
    mirrored.finish()
    assert is_over(mirrored)
    assert memory.cat(name) == b"12"
    assert memory.find("/") == [name]
    assert (sent.messages, mirrored.left_behind()) == ([], "")
    mirrored.close()
    mirrored.close()


def test_storage_that_fails_is_one_warning_and_the_files_stay(tmp_path: Path) -> None:
    sent = Sent()
    (tmp_path / "events.out.tfevents.1").write_bytes(b"1")
    mirrored = mirror(tmp_path, "nosuch://logs", sent, interval_s=0.01)
    mirrored.start()
    assert sent.arrived.wait(LONGEST_S)
    mirrored.finish()
    assert is_over(mirrored)
    (warning,) = sent.messages
    assert warning["id"] == "tensorboard-mirror"
    assert "event files of chief:0 can not be copied to nosuch://logs" in warning["message"]
    assert mirrored.left_behind().startswith("1 event files of chief:0 were not copied to nosuch://logs")
    mirrored.close()


class _Collecting:
    """Is over when it is told to be."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)


def test_it_is_over_when_the_collector_is_too(tmp_path: Path, memory: Any) -> None:
    collecting = _Collecting()
    mirrored = mirror(tmp_path, "memory://logs", Sent(), after=collecting)
    mirrored.start()
    mirrored.finish()
    assert not mirrored.is_over
    collecting.over.set()
    assert is_over(mirrored)
    mirrored.close()
