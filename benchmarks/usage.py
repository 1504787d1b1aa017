"""What the processes of one side cost: CPU seconds, and memory at its peak.

They are found by a mark in the environment that they were started with, which forks and descendants have too, wherever they were
moved to (a node's supervisor leaves the process tree). Standard library only: the other side's environment runs this too.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ("GROUP", "MARK", "PeakMemory", "Usage", "parse_pss_kib", "parse_ticks")

MARK = "BENCH_SIDE"
#: In the environment of processes that one of several sides in a Spark has for itself: its name.
GROUP = "BENCH_GROUP"
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Usage:
    """Marks what this process starts from now on; several in one process count what was started since the latest one."""

    def __init__(self) -> None:
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._group: str | None = None
        name, _, value = self._mark.partition("=")
        os.environ[name] = value

    def of(self, group: str) -> Usage:
        """The same for one of the sides that share a Spark: Python processes of this group, or with "" those of none."""
        part = copy.copy(self)
        part._group = group
        return part

    def cpu_s(self) -> float:
        """CPU seconds so far of this process and of everything marked, with their children that have ended."""
        return sum(self.cpu_by_kind().values())

    def cpu_by_kind(self) -> dict[str, float]:
        """The same by kind of process: `driver` (this one), `JVMs`, `nodes` (ours only), and `workers` (Spark's, in Python)."""
        found = dict.fromkeys(("driver", "JVMs", "nodes", "workers"), 0.0)
        for pid in self._pids():
            if text := _read(pid, "stat"):
                found[_kind(pid)] += parse_ticks(text) / _TICKS
        return found

    def python_pids(self) -> list[int]:
        """Marked processes that are no JVM, without this one: Spark's Python workers and the nodes."""
        return [pid for pid in self._pids() if pid != os.getpid() and not _executable(pid).endswith("/java")]

    def _pids(self) -> Iterator[int]:
        mark = self._mark.encode()
        for pid in [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]:
            environ = _read_bytes(pid, "environ").split(b"\0")
            if pid == os.getpid() or (mark in environ and self._counts(pid, environ)):
                yield pid

    def _counts(self, pid: int, environ: Iterable[bytes]) -> bool:
        if self._group is None or _executable(pid).endswith("/java"):
            return True
        name = f"{GROUP}=".encode()
        return self._group.encode() == next((entry[len(name) :] for entry in environ if entry.startswith(name)), b"")


class PeakMemory:
    """While it is entered, looks 20 times a second at the memory of all Python processes of a side; for a round that is not timed.

    PSS: pages that several processes share count once. `peak_mib` is the largest sum that was seen.
    """

    def __init__(self, usage: Usage) -> None:
        self.peak_mib = 0.0
        self._usage = usage
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            total = sum(parse_pss_kib(_read(pid, "smaps_rollup")) for pid in self._usage.python_pids())
            self.peak_mib = max(self.peak_mib, total / 1024)
            if self._done.wait(0.05):
                return


def parse_ticks(stat: str) -> int:
    """User and system time of a process and of its children that have ended, from /proc/PID/stat."""
    # The name is in parentheses and may hold anything, spaces and parentheses included.
    fields = stat.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def parse_pss_kib(rollup: str) -> int:
    """Proportional set size from /proc/PID/smaps_rollup; 0 when it is not there."""
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    if _executable(pid).endswith("/java"):
        return "JVMs"
    return "nodes" if b"TFOS_NODE=" in _read_bytes(pid, "environ") else "workers"


def _read(pid: int, name: str) -> str:
    return _read_bytes(pid, name).decode(errors="replace")


def _read_bytes(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
        return (_PROC / str(pid) / name).read_bytes()
    return b""


def _executable(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str((_PROC / str(pid) / "exe").readlink())
    return ""
