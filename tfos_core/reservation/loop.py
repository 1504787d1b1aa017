"""The one thread that serves every connection: accepts, reads, writes and drops. Knows no nodes; `Handler` decides what to do."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from dataclasses import dataclass
from typing import Protocol

from tfos_core.errors import AuthenticationError, ProtocolError
from tfos_core.reservation.admission import Admission
from tfos_core.reservation.channel import Channel, denial
from tfos_core.reservation.connection import Connection
from tfos_core.reservation.handshake import ServerHandshake
from tfos_core.reservation.messages import Message
from tfos_core.reservation.tcp import close_quietly, tune

__all__ = ("Handler", "Limits", "ServerLoop")

logger = logging.getLogger(__name__)

_ACCEPTS_PER_ROUND = 64
_PAUSE_AFTER_FAILED_ACCEPT_S = 0.5
_DRAIN_S = 1.0
_WARNINGS_PER_PERIOD = 20
_WARNING_PERIOD_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What peers may cost: how many strangers for how long, and how much a peer may leave unread."""

    strangers: int = 256
    authentication_s: float = 5.0
    stranger_grace_s: float = 1.0
    backlog_bytes: int = 64 * 1024 * 1024


class Handler(Protocol):
    """What the loop tells, always in its own thread."""

    def received(self, connection: Connection, message: Message) -> None:
        """An authenticated peer said something. Raises ProtocolError when the peer has to go."""

    def dropped(self, connection: Connection) -> None:
        """An authenticated peer is gone."""

    def crashed(self, error: Exception) -> None:
        """The loop has ended by a bug of its own; nobody is served any more."""


class ServerLoop:
    """Runs from `start` to `stop`; `touch` says that a connection has something to send."""

    def __init__(self, listener: socket.socket, secret: bytes, handler: Handler, limits: Limits) -> None:
        self._listener = listener
        self._secret = secret
        self._handler = handler
        self._limits = limits
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._admission: Admission[Connection] = Admission(
            limit=limits.strangers, time_limit_s=limits.authentication_s, grace_s=limits.stranger_grace_s
        )
        self._connections: set[Connection] = set()
        self._touched: set[Connection] = set()
        self._lock = threading.Lock()
        self._stopping = False
        self._listening = False
        self._accept_after = 0.0
        self._warnings_since = 0.0
        self._warnings = 0
        self._thread = threading.Thread(target=self._run, name="tfos-reservation-server", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self._thread.start()

    def touch(self, connection: Connection) -> None:
        """Have a connection's queue sent soon; from any thread."""
        with self._lock:
            first = not self._touched
            self._touched.add(connection)
        if first:
            self._wake()

    def stop(self) -> None:
        """Deliver what is queued (for at most a second), close everything, and wait for the thread. Also from its own thread."""
        self._stopping = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        # A full pipe wakes it as well; a closed one means that it has ended.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round()
            self._drain()
        except Exception as exc:
            logger.exception("the reservation server failed")
            self._handler.crashed(exc)
        finally:
            for connection in list(self._connections):
                connection.closed = True
                close_quietly(connection.sock)
            for sock in (self._listener, self._wake_in, self._wake_out):
                sock.close()
            self._selector.close()

    def _round(self) -> None:
        now = time.monotonic()
        self._watch_listener(now)
        for key, events in self._selector.select(self._timeout(now)):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data is None:
                self._drain_wakes()
            elif not key.data.closed:
                self._serve(key.data, events)
        self._flush_touched()
        for connection in self._admission.overdue(time.monotonic()):
            self._drop(connection, f"it did not prove itself within {self._limits.authentication_s:g} s")

    def _timeout(self, now: float) -> float | None:
        waits = [self._admission.next_change(now)]
        if not self._listening and self._accept_after > now:
            waits.append(self._accept_after - now)
        return min((wait for wait in waits if wait is not None), default=None)

    def _watch_listener(self, now: float) -> None:
        """Leave new connections in the kernel's queue while there is no room for them."""
        if (oldest := self._admission.replaceable(now)) is not None:
            self._drop(oldest, "it did not prove itself, and others are waiting")
        wanted = self._admission.has_room() and now >= self._accept_after
        if wanted and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        elif self._listening and not wanted:
            self._selector.unregister(self._listener)
        self._listening = wanted

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            if not self._admission.has_room():
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                # Out of file descriptors: the listener stays readable, and trying again at once would only burn a core.
                logger.warning("can not accept connections for the moment: %s", exc)
                self._accept_after = time.monotonic() + _PAUSE_AFTER_FAILED_ACCEPT_S
                return
            self._admit(sock, str(address[0]), f"{address[0]}:{address[1]}")

    def _admit(self, sock: socket.socket, host: str, peer: str) -> None:
        try:
            tune(sock)
        except OSError:  # it is gone already
            sock.close()
            return
        channel = Channel(ServerHandshake(self._secret))
        connection = Connection(sock, peer, channel, backlog_limit_bytes=self._limits.backlog_bytes)
        self._connections.add(connection)
        self._admission.add(connection, time.monotonic(), host)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        connection.push_reply()
        self._flush(connection)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                self._read(connection)
            if events & selectors.EVENT_WRITE and not connection.closed:
                self._flush(connection)
        except AuthenticationError as exc:
            with contextlib.suppress(OSError):
                connection.sock.send(denial())
            self._drop(connection, str(exc))
        except ProtocolError as exc:
            self._drop(connection, f"{exc}. {exc.hint}" if exc.hint else str(exc))
        except Exception:
            # A bug of ours, met by one peer's message, must not end the service for all others.
            logger.exception("serving %s failed", connection)
            self._drop(connection, "serving it failed")

    def _read(self, connection: Connection) -> None:
        was_authenticated = connection.channel.authenticated
        try:
            messages = connection.receive()
        except OSError as exc:
            self._drop(connection, exc.strerror or str(exc), expected=not connection.node)
            return
        if messages is None:
            self._drop(connection, "it closed the connection", expected=True)
            return
        for message in messages:
            self._handler.received(connection, message)
            if connection.closed:
                return
        if not was_authenticated:
            connection.push_reply()
            self._flush(connection)
            if connection.channel.authenticated:
                self._admission.discard(connection)

    def _flush_touched(self) -> None:
        with self._lock:
            touched, self._touched = self._touched, set()
        for connection in touched:
            if not connection.closed:
                self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        connection.flush()
        if connection.overflowed:
            self._drop(connection, f"it left more than {self._limits.backlog_bytes} bytes unread")
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.has_backlog else 0)
        if self._selector.get_key(connection.sock).events != events:
            self._selector.modify(connection.sock, events, connection)

    def _drop(self, connection: Connection, reason: str, *, expected: bool = False) -> None:
        """Close a connection; `expected` when it is the peer that ended it."""
        if connection.closed:
            return
        connection.closed = True
        # Losing a node is always told; strangers must not be able to fill the log.
        quiet = expected or not (connection.node or self._may_warn())
        logger.log(logging.DEBUG if quiet else logging.WARNING, "dropped the connection from %s: %s", connection, reason)
        self._selector.unregister(connection.sock)
        self._connections.discard(connection)
        self._admission.discard(connection)
        close_quietly(connection.sock)
        if connection.channel.authenticated:
            self._handler.dropped(connection)

    def _may_warn(self) -> bool:
        now = time.monotonic()
        if now - self._warnings_since >= _WARNING_PERIOD_S:
            if self._warnings > _WARNINGS_PER_PERIOD:
                logger.warning("dropped %d more connections, see the debug log", self._warnings - _WARNINGS_PER_PERIOD)
            self._warnings_since, self._warnings = now, 0
        self._warnings += 1
        return self._warnings <= _WARNINGS_PER_PERIOD

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass

    def _drain(self) -> None:
        """Deliver what was said before the stop, as far as nodes take it.

        Each gets the rest of its queue and then the end, and is read until it closes as well: closing a socket with unread data
        in it resets the connection, and what the kernel had not sent yet is lost with it.
        """
        deadline = time.monotonic() + _DRAIN_S
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                if connection.node:
                    selector.register(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, events in selector.select(left):
                    if events & selectors.EVENT_WRITE and key.data.finish():
                        selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                    if events & selectors.EVENT_READ and key.data.discard():
                        selector.unregister(key.fileobj)
