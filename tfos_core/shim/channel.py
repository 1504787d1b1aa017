"""The driver shim's end of the private channel to the command line that follows the run.

JSON lines over a Unix socket: first the token, then events one way and `{"op": "shutdown", "reason": ...}` the other. Nothing here
ever makes the job wait for its follower: what the follower does not take is kept up to a limit and then dropped, because everything
is in `events.jsonl` as well.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfos_core.errors import ChannelClosedError
from tfos_core.json_text import parse_json

__all__ = ("MAX_LINE_BYTES", "ChannelDescriptor", "FollowerChannel")

logger = logging.getLogger(__name__)

VERSION = 1
#: A node's failure with its traceback and last lines stays far below.
MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_WAITING_LINES = 10_000
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDescriptor:
    """Where the follower listens, and what proves that a peer may read the run's folder."""

    socket: str
    token: str

    @classmethod
    def read(cls, path: Path) -> ChannelDescriptor:
        """Read the file that the follower wrote; raises OSError or ValueError."""
        data = parse_json(path.read_text(encoding="utf-8"))
        return cls(socket=str(data["socket"]), token=str(data["token"]))

    def to_json(self) -> str:
        """The content of that file."""
        return json.dumps({"v": VERSION, "socket": self.socket, "token": self.token})


class FollowerChannel:
    """A connected channel with a thread for each direction.

    Args:
        on_shutdown: called with the reason when the follower asks for the end; from the reading thread.
        on_closed: called once when the follower is gone, not after `close()`; from the reading thread.
    """

    def __init__(self, descriptor: ChannelDescriptor, *, on_shutdown: Callable[[str], None], on_closed: Callable[[], None]) -> None:
        self._on_shutdown = on_shutdown
        self._on_closed = on_closed
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._sending = False
        self._dropped = 0
        self._socket = _connect(descriptor)
        self._threads = [
            threading.Thread(target=self._write, name="tfos-channel-write", daemon=True),
            threading.Thread(target=self._read, name="tfos-channel-read", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, line: str) -> None:
        """Queue one line of JSON; never waits and never raises."""
        with self._changed:
            if len(self._waiting) >= _MAX_WAITING_LINES:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(line.encode() + b"\n")
            self._changed.notify_all()

    def close(self, *, timeout: float = 5.0) -> None:
        """Send what waits, for at most `timeout` seconds, and close; may be called twice."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._sending), max(0.0, deadline - time.monotonic()))
            self._ending = True
            self._changed.notify_all()
        if self._dropped:
            logger.warning("the follower did not keep up: %s lines were not sent", self._dropped)
        _shut(self._socket)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.1, deadline - time.monotonic()))
        self._socket.close()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending)
                if self._ending:
                    return
                line = self._waiting.popleft()
                self._sending = True
            try:
                self._socket.sendall(line)
            except OSError:
                self._discard()
                return
            with self._changed:
                self._sending = False
                self._changed.notify_all()

    def _discard(self) -> None:
        """The follower is gone: nothing will be sent any more, and `close` must not wait for it."""
        with self._changed:
            self._sending = False
            self._waiting = deque(maxlen=0)
            self._changed.notify_all()

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            while line := _next_line(lines):
                self._handle(line)
        if not self._ending:
            self._on_closed()

    def _handle(self, line: bytes) -> None:
        try:
            message = parse_json(line)
        except ValueError:
            logger.warning("the follower sent a line that is not JSON")
            return
        if isinstance(message, dict) and message.get("op") == "shutdown":
            self._on_shutdown(str(message.get("reason", "")))


def _next_line(lines: Any) -> bytes:
    try:
        line: bytes = lines.readline(MAX_LINE_BYTES)
    except OSError:
        return b""
    return line


def _connect(descriptor: ChannelDescriptor) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(descriptor.socket)
        connection.sendall(json.dumps({"v": VERSION, "op": "hello", "token": descriptor.token}).encode() + b"\n")
        connection.settimeout(None)
    except OSError as exc:
        connection.close()
        raise ChannelClosedError(
            f"the process that follows this run does not answer at {descriptor.socket}: {exc}",
            "It was probably killed; submit the run again.",
        ) from exc
    return connection


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the peer was faster
