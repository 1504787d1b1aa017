"""TensorBoard on its node: a child of the supervisor, watched by a thread of it."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.node_config import NodeConfig
from tfos_core.tensorboard.command import board_command, board_environment

__all__ = ("BoardProcess",)

#: TensorBoard imports TensorFlow, which takes a while on a busy host, in seconds.
_READY_S = 120.0
#: Nothing tells that a foreign process has begun to listen, so it is asked, in seconds.
_ASK_S = 0.25
_ANSWER_S = 5.0


class BoardProcess:
    """Starts TensorBoard, says once that it answers, and says so when it ends; nothing that happens to it harms the node.

    Args:
        host: the address of this host that others reach.
        holder: keeps the port until TensorBoard has it; belongs to the caller.
        send: to the driver; from the thread.

    Raises:
        OSError: the interpreter can not be started.
    """

    def __init__(self, config: NodeConfig, *, host: str, holder: socket.socket, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._config = config
        self._send = send
        self._node_host = host
        self._address = (host if config.cluster.tensorboard_bind == "node" else "127.0.0.1", int(holder.getsockname()[1]))
        self._log = Path(config.working_dir) / f"tfos-{config.slot.role}-{config.slot.index}-tensorboard.log"
        self._closing = threading.Event()
        command = board_command(
            config.python,
            log_base=config.log_base or "",
            host=self._address[0],
            port=self._address[1],
            title=config.cluster.run_id,
        )
        self._temporary = self._log.with_suffix(".tmp")
        self._temporary.mkdir(exist_ok=True)
        with self._log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=config.working_dir,
                env=board_environment(config, os.environ, temporary=str(self._temporary)),
            )
        self._thread = threading.Thread(target=self._watch, name="tfos-tensorboard", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The process, which other clean-ups have to spare."""
        return self._popen.pid

    def close(self) -> None:
        """End it, and wait until it has; may be called twice."""
        self._closing.set()
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGKILL)  # it keeps nothing that could be lost
        self._thread.join(_ANSWER_S)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _watch(self) -> None:
        if self._wait_until_ready():
            self._send({"op": "tensorboard.up", "host": self._node_host})
        elif not self._closing.is_set() and self._popen.poll() is None:
            self._tell_down(f"did not answer at port {self._address[1]} within {_READY_S:g} s", "")
            self._closing.set()
            self._popen.send_signal(signal.SIGKILL)
        status = self._popen.wait()
        if not self._closing.is_set():
            lines = self._last_lines()
            how = f"was killed by signal {-status}" if status < 0 else f"ended with code {status}"
            said = f": {lines[-1]}" if lines else ""
            missing = any("No module named" in line for line in lines)
            hint = f"Install the package tensorboard for {self._config.python} on every executor." if missing else ""
            self._tell_down(f"{how}{said}", hint)

    def _wait_until_ready(self) -> bool:
        until = time.monotonic() + _READY_S
        while self._popen.poll() is None and not self._closing.is_set() and time.monotonic() < until:
            if self._answers():
                return True
            self._closing.wait(_ASK_S)
        return False

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_S)
        try:
            connection.request("GET", "/data/environment")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _tell_down(self, what: str, hint: str) -> None:
        where = f"TensorBoard of {self._config.name} on {self._node_host}"
        self._send({"op": "tensorboard.down", "message": f"{where} {what}", "hint": hint or f"Its output is in {self._log}."})

    def _last_lines(self) -> list[str]:
        try:
            text = self._log.read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines() if line.strip()]
