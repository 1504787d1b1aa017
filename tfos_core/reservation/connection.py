"""The server's side of one connection: its socket, and the queue of what is to be sent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice

from tfos_core.reservation.channel import Channel
from tfos_core.reservation.messages import Message
from tfos_core.reservation.tcp import RECEIVE_BYTES

__all__ = ("Connection",)

_PIECES_PER_CALL = 64


class Connection:
    """`push` is for any thread; everything else belongs to the server's own thread."""

    def __init__(self, sock: socket.socket, peer: str, channel: Channel, *, backlog_limit_bytes: int) -> None:
        self.sock = sock
        self.channel = channel
        self.node = ""
        self.wants_cluster = False
        self.closed = False
        self._peer = peer
        self._limit = backlog_limit_bytes
        self._lock = threading.Lock()
        self._queue: deque[memoryview] = deque()
        self._backlog = 0
        self._writable = True
        self._overflowed = False

    def __str__(self) -> str:
        return f"{self.node} ({self._peer})" if self.node else self._peer

    @property
    def overflowed(self) -> bool:
        """Whether more than the peer may leave unread has waited to be sent; what came after that was not even queued."""
        return self._overflowed

    @property
    def has_backlog(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue)

    def push(self, body: bytes) -> None:
        """Queue an encoded message. Bodies are shared between connections, not copied; an overflow is the server's to act on."""
        with self._lock:
            if self._overflowed or self.closed or not self._writable:
                return
            # A client may go on before it has seen our proof, but the proof must be the first thing that it sees.
            self._enqueue(self.channel.take_reply(), self.channel.seal(body), body)
            self._overflowed = self._backlog > self._limit

    def push_reply(self) -> None:
        """Queue what the handshake has to say."""
        with self._lock:
            self._enqueue(self.channel.take_reply())

    def receive(self) -> Iterator[Message] | None:
        """The messages that have come in so far; None when the peer has closed.

        Raises:
            OSError, ProtocolError: the connection is of no use any more (the latter while iterating).
        """
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return iter(())
        return self.channel.receive(data) if data else None

    def flush(self) -> None:
        """Send as much as the kernel takes now.

        A peer that no longer takes anything is not an error here: what it sent last may still be unread, and reading finds its end.
        """
        with self._lock:
            try:
                while self._queue:
                    self._sent(self.sock.sendmsg(list(islice(self._queue, _PIECES_PER_CALL))))
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._writable = False
                self._queue.clear()
                self._backlog = 0

    def finish(self) -> bool:
        """Send the rest, and tell the peer that it was the last; False when the kernel does not take all of it yet."""
        self.flush()
        if not self._queue:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
        return not self._queue

    def discard(self) -> bool:
        """Read and forget what is there; True when the peer has closed."""
        try:
            return not self.sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def _enqueue(self, *pieces: bytes) -> None:
        for piece in pieces:
            if piece:
                self._queue.append(memoryview(piece))
                self._backlog += len(piece)

    def _sent(self, count: int) -> None:
        self._backlog -= count
        while count:
            piece = self._queue.popleft()
            if count < len(piece):
                self._queue.appendleft(piece[count:])
                return
            count -= len(piece)
