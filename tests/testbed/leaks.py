"""What a test leaves behind: processes, listening sockets, files.

A SparkContext that a module's tests share is there before and after a test; its JVMs, the Python workers below them and their
sockets belong to Spark and are not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testbed.processes import Process, marked, read_process
from testbed.sockets import Listener, list_listeners
from testbed.waiting import poll_until

__all__ = ("Leftovers", "Snapshot", "assert_nothing_left", "find_leftovers", "take_snapshot")

SPARK_PYTHON = ("pyspark.daemon", "pyspark/daemon.py", "pyspark.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is there before a test. `mark` is the value of the tests' mark; `roots` are the folders whose files count."""

    mark: str
    processes: frozenset[tuple[int, int]]
    listeners: frozenset[int]
    files: frozenset[Path]
    roots: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What is there after a test and was not before."""

    processes: tuple[Process, ...] = ()
    listeners: tuple[Listener, ...] = ()
    files: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.listeners or self.files)

    def __str__(self) -> str:
        lines = [f"process {process}" for process in self.processes]
        lines += [f"socket  {listener}" for listener in self.listeners]
        lines += [f"file    {path}" for path in self.files]
        return "\n".join(lines)


def take_snapshot(mark: str, roots: Iterable[Path] = ()) -> Snapshot:
    """What is there now."""
    roots = tuple(roots)
    processes = marked(mark)
    pids = {process.pid for process in processes} | {os.getpid()}
    return Snapshot(
        mark=mark,
        processes=frozenset(process.identity for process in processes),
        listeners=frozenset(listener.inode for listener in list_listeners(pids)),
        files=frozenset(_files(roots)),
        roots=roots,
    )


def find_leftovers(before: Snapshot) -> Leftovers:
    """What was not there at the time of the snapshot, without what belongs to a Spark that was."""
    now = {process.pid: process for process in marked(before.mark)}
    ours = {pid: process for pid, process in now.items() if not _belongs_to_spark(process, now, before)}
    new = tuple(process for process in ours.values() if process.identity not in before.processes)
    # The tests' own process has listeners too when it is the driver.
    listeners = tuple(entry for entry in list_listeners({*ours, os.getpid()}) if entry.inode not in before.listeners)
    files = tuple(sorted(path for path in _files(before.roots) if path not in before.files))
    return Leftovers(processes=new, listeners=listeners, files=files)


def assert_nothing_left(before: Snapshot, *, deadline_s: float = 5.0) -> None:
    """Wait until nothing is left.

    Raises:
        AssertionError: something still is at the deadline; the message says what.
    """
    poll_until(
        lambda: not find_leftovers(before),
        deadline_s,
        what=lambda: f"nothing left behind; there is\n{find_leftovers(before)}",
    )


def _belongs_to_spark(process: Process, now: dict[int, Process], before: Snapshot) -> bool:
    """A JVM that was there, or a Python worker below one: Spark keeps workers for reuse. A daemonised one has no such parent."""
    if not process.is_java and not any(process.runs(name) for name in SPARK_PYTHON):
        return False
    current: Process | None = process
    while current is not None and current.pid > 1:
        if current.is_java:
            return current.identity in before.processes
        current = now.get(current.parent) or read_process(current.parent)
    return False


def _files(roots: Iterable[Path]) -> set[Path]:
    return {Path(folder) / name for root in roots for folder, folders, files in os.walk(root) for name in (*folders, *files)}
