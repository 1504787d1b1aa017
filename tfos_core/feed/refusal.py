"""What feed tasks hear after the TensorFlow process is gone: its outcome, at once; standard library only.

The supervisor inherited the listening socket, so a connection never meets a closed door between the two.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from tfos_core.errors import FeedError
from tfos_core.feed import wire
from tfos_core.feed.wire import Mode, Op

__all__ = ("Refusal", "Uplink")

_HELLO_TIMEOUT_S = 2.0


class Uplink(Protocol):
    """The way to the driver; `send` may be called from any thread."""

    def send(self, message: dict[str, Any]) -> None:
        """Hand one message on; must not wait for the driver."""


class Refusal:
    """Answers every connection on a listening socket with CLOSED or FAILED until it is stopped.

    With an `uplink` the driver learns which partitions were turned away; without, it learns when the Spark job ends.
    """

    def __init__(self, listener: socket.socket, *, node: str, generation: str, uplink: Uplink | None = None) -> None:
        self._listener = listener
        self._node = node
        self._generation = generation
        self._uplink = uplink
        self._answer = b""
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread: threading.Thread | None = None

    def start(self, outcome: Literal["closed", "failed"], error: Mapping[str, Any] | None = None) -> None:
        """Begin to answer: `closed` when the user's function returned, `failed` with its error otherwise."""
        if outcome == "failed":
            self._answer = wire.pack_json(Op.FAILED, {"message": f"node {self._node} failed", **(error or {})})
        else:
            self._answer = wire.pack_json(Op.CLOSED, {"node": self._node, "generation": self._generation})
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="tfos-feed-refusal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; idempotent, leaves the listening socket open."""
        if self._thread is None:
            return
        with contextlib.suppress(OSError):
            self._stop_writer.send(b"x")
        self._thread.join(_HELLO_TIMEOUT_S + 1)
        self._thread = None
        self._stop_reader.close()
        self._stop_writer.close()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._stop_reader, select.POLLIN)
        stop = self._stop_reader.fileno()
        while stop not in (ready := {descriptor for descriptor, _ in poller.poll()}):
            if ready:
                with contextlib.suppress(OSError, FeedError):
                    self._refuse_one()

    def _refuse_one(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_HELLO_TIMEOUT_S)
            if not wire.peer_is_me(connection, os.getuid()):
                return
            header = wire.read_header(connection)
            if header is None or header.op is not Op.HELLO:
                return
            hello = wire.read_json(connection, header.length)
            connection.sendall(self._answer)
            if self._uplink is not None and hello.get("mode") == Mode.TRAIN:
                self._uplink.send({"op": "feed.discarded", "seq": hello.get("seq"), "partition": hello.get("partition")})
