"""What a driver and its executors hold at a moment: memory, threads, descriptors, sockets, processes, files.

Processes are found by a variable in their environment, which all that Spark and tfos start inherits, however it was detached.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from growth import Limit

__all__ = ("CLUSTER_LIMITS", "MARK", "ClusterFootprint", "count_files", "marked_processes", "wait_until_gone")

MARK = "SOAK_MARK"  # not TFOS_...: tfos warns about such names when it does not know them

_KIB = 1024.0
_THREAD = re.compile(rb'^"([^"]*)"', re.MULTILINE)
_TOTAL = re.compile(rb"^Total\s+\d+\s+(\d+)", re.MULTILINE)

#: Live heap is what the garbage collector could not free. A JVM's memory as the system sees it says how much it once needed.
CLUSTER_LIMITS: Mapping[str, Limit] = {
    "driver: memory": Limit(unit="KiB", per_cycle=16, in_all=1024, is_memory=True),
    "driver: Python objects": Limit(per_cycle=10, in_all=500, is_memory=True),
    "driver: threads": Limit(),
    "driver: descriptors": Limit(),
    "driver: sockets": Limit(),
    "driver: children": Limit(),
    "driver's JVM: live heap": Limit(unit="KiB", per_cycle=8, in_all=512, is_memory=True),
    "driver's JVM: memory": Limit(unit="KiB", per_cycle=None),
    "driver's JVM: threads": Limit(in_all=3.5),
    "driver's JVM: descriptors": Limit(in_all=3.5),
    "executors' JVMs: live heap": Limit(unit="KiB", per_cycle=8, in_all=512, is_memory=True),
    "executors' JVMs: memory": Limit(unit="KiB", per_cycle=None),
    "executors' JVMs: threads": Limit(in_all=3.5),
    "executors' JVMs: descriptors": Limit(in_all=3.5),
    "Python workers: processes": Limit(in_all=3.5),
    "Python workers: memory of the largest": Limit(unit="KiB", per_cycle=16, in_all=1024, is_memory=True),
    "Python workers: threads": Limit(in_all=3.5),
    "Python workers: descriptors": Limit(in_all=7.5),
    "nodes: processes left": Limit(),
    "zombies": Limit(),
    "files: tfos-* in TMPDIR": Limit(),
    "files: of Spark and Python in TMPDIR": Limit(in_all=3.5),
    "files: in /tmp": Limit(),
    "files: in folders of executors": Limit(),
    "files: bytes in folders of executors": Limit(unit="KiB", per_cycle=None),
}


@dataclass(slots=True, kw_only=True)
class ClusterFootprint:
    """Samples of this process as a driver, with executors on this machine.

    Attributes:
        mark: value of `MARK` in the environment of everything that belongs to it.
        temporary: TMPDIR of all of them; executors work in `spark/work` below it.
        tmp: a folder outside of it that nobody else writes to: /tmp, or None.
    """

    mark: str
    temporary: Path
    tmp: Path | None = None
    left: list[str] = field(default_factory=list)

    def sample(self) -> dict[str, float]:
        """What is there now; waits a moment for processes that are just ending."""
        self.left += wait_until_gone(lambda: self._sorted()[3])
        jvms, executors, workers, nodes = self._sorted()
        found: dict[str, float] = self._driver()
        for name, group in (("driver's JVM", jvms), ("executors' JVMs", executors)):
            threads = [count for count in map(_own_threads, group) if count is not None]
            heaps = [heap for heap in map(_live_heap, group) if heap is not None]
            if heaps and len(heaps) == len(group):
                found[f"{name}: live heap"] = sum(heaps) / _KIB
            found |= _sums(name, group)
            if threads and len(threads) == len(group):
                found[f"{name}: threads"] = float(sum(threads))
        found |= {"Python workers: processes": len(workers)} | _sums("Python workers", workers)
        del found["Python workers: memory"]
        found["Python workers: memory of the largest"] = max((_memory(worker) for worker in workers), default=0.0) / _KIB
        found["nodes: processes left"] = len(nodes)
        found["zombies"] = _zombies([os.getpid(), *(process.pid for process in (*jvms, *executors, *workers))])
        return found | self._files()

    def _driver(self) -> dict[str, float]:
        gc.collect()
        me = psutil.Process()
        found = {"driver: Python objects": float(len(gc.get_objects()))}
        found |= _sums("driver", [me])
        found["driver: sockets"] = float(_sockets(me.pid))
        found["driver: children"] = float(len(me.children()))
        return found

    def _files(self) -> dict[str, float]:
        work = self.temporary / "spark" / "work"
        own = [path for path in self.temporary.iterdir() if path.name.startswith("tfos-")]
        others = [path for path in self.temporary.iterdir() if path not in own and path.name != "spark"]
        # Spark makes up to 64 folders in each of its own when it first needs them.
        elsewhere = {} if self.tmp is None else {"files: in /tmp": float(count_files([self.tmp]) - count_files([self.temporary]))}
        return elsewhere | {
            "files: tfos-* in TMPDIR": float(count_files(own)),
            "files: of Spark and Python in TMPDIR": float(count_files(others, folders=False)),
            "files: in folders of executors": float(count_files([work])),
            "files: bytes in folders of executors": _bytes(work) / _KIB,
        }

    def _sorted(self) -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
        """JVMs of the driver and of executors, Python workers, and what belongs to nodes."""
        groups: tuple[list[psutil.Process], ...] = ([], [], [], [])
        for process in marked_processes(self.mark):
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if command and Path(command[0]).name == "java":
                    groups[any("CoarseGrainedExecutorBackend" in part for part in command)].append(process)
                elif any(part.startswith(("pyspark.daemon", "pyspark.worker")) for part in command):
                    groups[2].append(process)
                elif command:
                    groups[3].append(process)
        return groups[0], groups[1], groups[2], groups[3]


def marked_processes(mark: str) -> list[psutil.Process]:
    """All other processes whose environment has this mark."""
    found = []
    for process in psutil.process_iter():
        # Zombies have no environment.
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def wait_until_gone(look: object, seconds: float = 5.0) -> list[str]:
    """Wait until `look()` finds no process; what is there at the end, in words."""
    assert callable(look)
    until = time.monotonic() + seconds
    while look() and time.monotonic() < until:
        time.sleep(0.05)
    return [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in look()]


def count_files(roots: Iterable[Path], *, folders: bool = True) -> int:
    """Files, sockets and (by default) folders at and below `roots`."""
    found = 0
    for root in roots:
        if root.exists():
            found += root.is_file() or folders
            found += sum(len(files) + len(below) * folders for _, below, files in os.walk(root))
    return found


def _bytes(root: Path) -> int:
    total = 0
    for folder, _, files in os.walk(root):
        for name in files:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).stat().st_size
    return total


def _sums(name: str, group: Iterable[psutil.Process]) -> dict[str, float]:
    sums = {f"{name}: memory": 0.0, f"{name}: threads": 0.0, f"{name}: descriptors": 0.0}
    for process in group:
        with contextlib.suppress(psutil.Error):
            sums[f"{name}: memory"] += _memory(process) / _KIB
            sums[f"{name}: threads"] += process.num_threads()
            sums[f"{name}: descriptors"] += process.num_fds()
    return sums


def _memory(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss)
    except psutil.Error:
        return 0.0


def _sockets(pid: int) -> int:
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(entry.readlink()).startswith("socket:")
    return found


def _zombies(parents: Iterable[int]) -> float:
    wanted = set(parents)
    found = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += process.status() == psutil.STATUS_ZOMBIE and process.ppid() in wanted
    return float(found)


def _live_heap(jvm: psutil.Process) -> int | None:
    """Bytes of the objects that are left after a collection; None without a JDK's `jcmd`."""
    # What has a finalizer, or is only weakly referred to, goes with the second collection.
    _ask(jvm, "GC.run")
    total = _TOTAL.search(_ask(jvm, "GC.class_histogram"))
    return int(total[1]) if total else None


def _own_threads(jvm: psutil.Process) -> int | None:
    """Threads without those of the pools of Spark's block manager: up to 228, which end when they were idle for a minute."""
    found = _THREAD.findall(_ask(jvm, "Thread.print"))
    return sum(not name.startswith(b"block-manager-") for name in found) or None


def _ask(jvm: psutil.Process, question: str) -> bytes:
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        return b""
    return subprocess.run([jcmd, str(jvm.pid), question], capture_output=True, timeout=60).stdout
