"""Facts about processes of this host, from /proc: start times, ancestors, marks. Standard library only.

macOS has no /proc: there the functions that look find nothing, and the death of a peer is noticed by its closed socket alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from tfos_core.settings import MARK_VARIABLE, SUPERVISOR_VARIABLE

__all__ = (
    "become_subreaper",
    "descendants",
    "die_with_parent",
    "has_pidfd",
    "is_same_process",
    "java_ancestor",
    "kill_descendants",
    "kill_orphans",
    "parent_of",
    "pid_namespace",
    "process_state",
    "reap_strangers",
    "start_time",
)

logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def has_pidfd() -> bool:
    """Whether the kernel gives pidfds: Python may know them where the kernel (before 5.3) or a seccomp filter does not."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def start_time(pid: int) -> int:
    """Clock ticks between boot and the start of a process (proc(5), field 22); 0 when it does not exist."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def parent_of(pid: int) -> int:
    """Process id of the parent; 0 when there is none."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def process_state(pid: int) -> str:
    """The letter of proc(5): R runs, S sleeps, D waits in the kernel, T is stopped, Z has ended; `?` when it does not exist."""
    fields = _stat(pid)
    return fields[0] if fields else "?"


def is_same_process(pid: int, started: int) -> bool:
    """Whether `pid` is still the process that started then, and not a zombie."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] != "Z"


def java_ancestor(pid: int) -> int:
    """The nearest ancestor whose executable is `java`: on an executor this is its JVM (the next one up may be Spark's Worker).

    Returns 0 when none is found.
    """
    pid = parent_of(pid)
    while pid > 1:
        with contextlib.suppress(OSError):
            # An upgrade of Java under a running JVM marks the link of its executable.
            if (_PROC / str(pid) / "exe").readlink().name.removesuffix(" (deleted)") == "java":
                return pid
        pid = parent_of(pid)
    return 0


def die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when the parent's thread that started it ends; nothing elsewhere.

    Raises:
        ProcessLookupError: the parent is gone already.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(f"the supervisor (pid {parent}) ended before its node started")


def become_subreaper() -> None:
    """Become the parent of descendants whose own parents end, so that none escapes (prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> set[int]:
    """All processes below `pid`."""
    children: dict[int, list[int]] = {}
    for other in _all_pids():
        children.setdefault(parent_of(other), []).append(other)
    found: set[int] = set()
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def kill_descendants(pid: int, *, spare: int | None = None, deadline_s: float = 5.0) -> None:
    """SIGKILL every process below `pid` and reap those that are its children, until none is left.

    Args:
        spare: a process below `pid` that stays, with everything below it.
    """
    until = time.monotonic() + deadline_s
    while below := _below(pid, spare):
        for other in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(other, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            logger.warning("processes %s did not end after SIGKILL", sorted(below))
            return
        # a killed process needs a moment to become waitable, and there is no event for grandchildren
        time.sleep(0.01)


def reap_strangers(*, spare: Collection[int]) -> None:
    """Take note of children of this process that have ended, but not of `spare`, which somebody waits for.

    A subreaper gets the children of processes that have ended; nobody asks for them, and they would stay as zombies.
    """
    here = str(os.getpid())
    for pid in _all_pids():
        fields = _stat(pid)
        if fields[:2] == ["Z", here] and pid not in spare:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _below(pid: int, spare: int | None) -> set[int]:
    below = descendants(pid)
    return below if spare is None else below - descendants(spare) - {spare}


def kill_orphans() -> int:
    """SIGKILL processes of this user that carry our mark but whose supervisor is gone; returns how many."""
    killed = 0
    here = pid_namespace("self")
    for pid in _all_pids():
        owner = _marked_owner(pid)
        # In a container of this host pids mean something else, and its supervisors may well live.
        if owner is not None and not is_same_process(*owner) and pid_namespace(pid) == here:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
                logger.warning("killed process %s, left behind by a node whose supervisor is gone", pid)
    return killed


def _marked_owner(pid: int) -> tuple[int, int] | None:
    """Pid and start time of the supervisor of a process that carries our mark."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    if not any(entry.startswith(f"{MARK_VARIABLE}=".encode()) for entry in environ):
        return None
    prefix = f"{SUPERVISOR_VARIABLE}=".encode()
    for entry in environ:
        if entry.startswith(prefix):
            owner, _, started = entry[len(prefix) :].decode(errors="replace").partition(":")
            if owner.isdigit() and started.isdigit():
                return int(owner), int(started)
    return None


def pid_namespace(pid: int | str) -> str:
    """What the pids that a process knows belong to (pid_namespaces(7)); empty when it is gone."""
    try:
        return str((_PROC / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return ""


def _all_pids() -> Iterator[int]:
    try:
        names = [entry.name for entry in _PROC.iterdir()]
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def _stat(pid: int) -> list[str]:
    """Fields 3 and up of /proc/PID/stat; the name before them may hold spaces and brackets, so cut at the last bracket."""
    try:
        # Names are cut at 15 bytes, in the middle of a character if need be.
        text = (_PROC / str(pid) / "stat").read_text(encoding="latin-1")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
