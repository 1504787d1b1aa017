"""Processes of a running job to break: found from the supervisor's, whose number is in the event `node_registered`."""

from __future__ import annotations

from pathlib import Path

from testbed.processes import Process, descendants, list_processes
from testbed.waiting import poll_until

__all__ = ("executor_jvm", "tensorflow_process")


def tensorflow_process(supervisor: int) -> Process:
    """The process that runs the user's function, as soon as it is there."""

    def look() -> tuple[Process, ...]:
        return tuple(process for process in descendants(supervisor) if process.runs("tfos_core.tf_process"))

    return poll_until(look, 20, what="the process of the node")[0]


def executor_jvm(supervisor: int) -> Process:
    """The JVM of the node's executor: both work in the executor's folder."""
    folder = _folder(supervisor)
    (found,) = (process for process in list_processes() if process.is_java and _folder(process.pid) == folder)
    return found


def _folder(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
