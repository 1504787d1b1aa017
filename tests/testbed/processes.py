"""Processes as /proc shows them, and children that do not survive the tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed.waiting import Deadline

__all__ = (
    "MARK",
    "Process",
    "descendants",
    "kill_all",
    "kill_group",
    "list_processes",
    "marked",
    "read_process",
    "start_child",
    "wait_until_gone",
)

# Set once by tests/conftest.py; every process that a test causes inherits it, however it was daemonised.
MARK = "TESTBED_SESSION"  # not TFOS_...: tfos warns about such names when it does not know them

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process at one moment; `started` (clock ticks since boot) tells a reused pid from the old one."""

    pid: int
    parent: int
    started: int
    state: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def identity(self) -> tuple[int, int]:
        """What stays the same for the life of a process and is never reused."""
        return (self.pid, self.started)

    @property
    def is_java(self) -> bool:
        """Whether it is a JVM."""
        return bool(self.command) and Path(self.command[0]).name == "java"

    def runs(self, text: str) -> bool:
        """Whether `text` occurs in its command line."""
        return any(text in argument for argument in self.command)

    def __str__(self) -> str:
        line = " ".join(self.command) or "?"
        return f"{self.pid} (parent {self.parent}, {self.state}) {line if len(line) < 300 else line[:140] + ' ... ' + line[-140:]}"


def read_process(pid: int) -> Process | None:
    """The process with this pid, or None when it is gone, a zombie, or not ours to look at."""
    folder = Path("/proc") / str(pid)
    try:
        # The second field is the program's name in parentheses and may itself hold blanks and parentheses.
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        command = (folder / "cmdline").read_bytes()
        environment = (folder / "environ").read_bytes()
    except OSError:
        return None
    state = fields[0].decode()
    if state in ("Z", "X"):
        return None
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0") if b"=" in entry)
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        state=state,
        command=tuple(os.fsdecode(part) for part in command.rstrip(b"\0").split(b"\0")) if command else (),
        environment={os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs},
    )


def list_processes() -> tuple[Process, ...]:
    """All processes that are not zombies."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - a thousand Paths a look
    return tuple(process for process in found if process is not None)


def marked(value: str, *, name: str = MARK) -> tuple[Process, ...]:
    """All processes that were started with `name=value` in their environment."""
    return tuple(process for process in list_processes() if process.environment.get(name) == value)


def descendants(pid: int) -> tuple[Process, ...]:
    """Children of `pid`, their children, and so on; a daemonised process is nobody's descendant."""
    by_parent: dict[int, list[Process]] = {}
    for process in list_processes():
        by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [pid]
    while queue:
        children = by_parent.get(queue.pop(), [])
        found += children
        queue += [child.pid for child in children]
    return tuple(found)


def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdout: int | IO[bytes] | IO[str] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | IO[str] | None = subprocess.DEVNULL,
    folder: Path | None = None,
    text: bool = False,
) -> subprocess.Popen[bytes] | subprocess.Popen[str]:
    """Start a process in a group and session of its own that is killed when the thread that called this ends.

    The tests' main thread calls it, so the child also dies with a test run that is killed.
    """
    return subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=text,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - takes no lock and allocates nothing
    )


def kill_group(child: subprocess.Popen[bytes] | subprocess.Popen[str], *, grace_s: float = 0.0) -> None:
    """End a child of `start_child` and everything in its process group: SIGTERM when there is grace, then SIGKILL."""
    if grace_s and child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    # Also after a normal end: others of the group may be left. The group's id can not be reused while one of them lives.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(10)


def kill_all(processes: Iterable[Process], *, deadline_s: float = 5.0) -> None:
    """Kill these processes, each only if its pid still means the same process, and wait until they are gone."""
    victims = tuple(processes)
    for victim in victims:
        now = read_process(victim.pid)
        if now is not None and now.identity == victim.identity:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
    wait_until_gone(victims, deadline_s)


def wait_until_gone(processes: Iterable[Process], deadline_s: float) -> tuple[Process, ...]:
    """Wait for these processes to end, by pidfd; returns those that are still there at the deadline."""
    deadline = Deadline(deadline_s)
    left = []
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            now = read_process(process.pid)
            if now is None or now.identity != process.identity:
                continue
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            if not poller.poll(deadline.left * 1000):
                left.append(process)
        finally:
            os.close(handle)
    return tuple(left)


def _die_with_parent() -> None:
    """Runs between fork and exec: have the kernel kill this process when the thread that forked it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
