"""Processes of a running job to break: found from the supervisor's, whose number is in the event `node_registered`."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections import deque
from pathlib import Path

from testbed.processes import Process, descendants, list_processes, read_process
from testbed.waiting import poll_until

__all__ = ("Flood", "executor_jvm", "tensorboard_process", "tensorflow_process", "worker_daemon")


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


def tensorboard_process(supervisor: int) -> Process:
    """TensorBoard beside the node, as soon as it is there."""

    def look() -> tuple[Process, ...]:
        return tuple(process for process in descendants(supervisor) if process.runs("tensorboard"))

    return poll_until(look, 60, what="TensorBoard of the node")[0]


def worker_daemon(supervisor: int) -> Process:
    """The Spark Worker that the node's executor belongs to."""
    found = read_process(executor_jvm(supervisor).parent)
    assert found is not None and found.is_java, found
    return found


class Flood:
    """Strangers at a port: they connect, send what is no greeting or say nothing, and come again. A context manager."""

    def __init__(self, host: str, port: int, *, at_once: int = 300) -> None:
        self._address = (host, port)
        self._at_once = at_once
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self.connections = 0

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def _run(self) -> None:
        held: deque[socket.socket] = deque()
        try:
            while not self._ending.is_set():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(self._address, timeout=1))
                    self.connections += 1
                    if self.connections % 2:
                        held[-1].sendall(secrets.token_bytes(512))
                if len(held) > self._at_once:
                    held.popleft().close()
                # The nodes need a part of the machine too.
                self._ending.wait(0.002)
        finally:
            for sock in held:
                sock.close()
