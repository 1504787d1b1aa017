"""JSON messages and byte strings between two processes of one node, over a socket pair that nobody else can reach."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from tfos_core.errors import ChannelClosedError

__all__ = ("Link", "link_pair")

#: No message comes near it: a longer one is what somebody else wrote to the file descriptor, and would be waited for in vain.
_LONGEST_MESSAGE_BYTES = 64 * 1024 * 1024


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
        """The next message; waits until the other process sends or ends.

        Raises:
            ChannelClosedError: the other process has ended, or what came is no message, so that the link is of no use any more.
        """
        data = self._receive(_LONGEST_MESSAGE_BYTES)
        try:
            message = json.loads(data)
        except ValueError as exc:
            raise ChannelClosedError(f"{len(data)} bytes on a node's link are no message") from exc
        if not isinstance(message, dict) or not isinstance(message.get("op", ""), str):
            raise ChannelClosedError(f"a message on a node's link is a JSON object, not {type(message).__name__}")
        return message

    def receive_bytes(self) -> bytes:
        """The next byte string; raises ChannelClosedError at the end."""
        return self._receive(None)

    def wait(self, timeout: float) -> bool:
        """Whether something can be received within `timeout` seconds."""
        try:
            return self._connection.poll(timeout)
        except OSError as exc:
            raise ChannelClosedError("the process at the other end of a node's link has ended") from exc

    def hang_up(self) -> None:
        """End the conversation, so that threads of this process that still send or receive get ChannelClosedError."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end; may be called twice. No other thread may be using it: its file descriptor may get a new owner."""
        self._connection.close()

    def _receive(self, limit_bytes: int | None) -> bytes:
        try:
            return self._connection.recv_bytes(limit_bytes)
        except (EOFError, OSError) as exc:
            raise ChannelClosedError("the process at the other end of a node's link has ended") from exc


def link_pair() -> tuple[Link, int]:
    """A link, and the file descriptor of its other end for a child process (close it after the child has started)."""
    here, there = socket.socketpair()
    return Link(here.detach()), there.detach()
