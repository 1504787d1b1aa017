"""JSON messages and byte strings between two processes of one node, over a socket pair that nobody else can reach."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from tfos_core.errors import ChannelClosedError

__all__ = ("Link", "link_pair")


class Link:
    """One end of a socket pair; `send` may be called from any thread, `receive` from one."""

    def __init__(self, fd: int) -> None:
        self._connection = Connection(fd)
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """For a selector: readable when a message or the end is there."""
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: the other process is gone.
        """
        self.send_bytes(json.dumps(message, separators=(",", ":")).encode())

    def send_bytes(self, data: bytes) -> None:
        """Send a byte string as it is; raises ChannelClosedError."""
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError as exc:
            raise ChannelClosedError(f"the process at the other end of a node's link is gone: {exc}") from exc

    def receive(self) -> dict[str, Any]:
        """The next message; waits until the other process sends or ends, which raises ChannelClosedError."""
        message = json.loads(self.receive_bytes())
        if not isinstance(message, dict):
            raise ChannelClosedError(f"a message on a node's link is a JSON object, not {type(message).__name__}")
        return message

    def receive_bytes(self) -> bytes:
        """The next byte string; raises ChannelClosedError at the end."""
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError) as exc:
            raise ChannelClosedError("the process at the other end of a node's link has ended") from exc

    def wait(self, timeout: float) -> bool:
        """Whether something can be received within `timeout` seconds."""
        try:
            return self._connection.poll(timeout)
        except OSError as exc:
            raise ChannelClosedError("the process at the other end of a node's link has ended") from exc

    def close(self) -> None:
        """Close this end; may be called twice."""
        self._connection.close()


def link_pair() -> tuple[Link, int]:
    """A link, and the file descriptor of its other end for a child process (close it after the child has started)."""
    here, there = socket.socketpair()
    return Link(here.detach()), there.detach()
