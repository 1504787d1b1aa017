"""A node's end of the control channel, also for those who only look at a cluster or stop it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from tfos_core.errors import (
    AuthenticationError,
    ChannelClosedError,
    ConfigError,
    DuplicateNodeError,
    ProtocolError,
    ReservationError,
    ReservationTimeoutError,
)
from tfos_core.reservation import local_secrets
from tfos_core.reservation.connect import open_channel
from tfos_core.reservation.handshake import Right
from tfos_core.reservation.messages import Message, Op, check_user_message, encode_message
from tfos_core.reservation.record import NodeRecord, inflated
from tfos_core.reservation.tcp import RECEIVE_BYTES, close_quietly, seconds_left, wait_ready

__all__ = ("Client",)

T = TypeVar("T")

_REFUSALS: dict[object, type[ReservationError]] = {"duplicate": DuplicateNodeError, "right": AuthenticationError}
_CLOSE_S = 1.0


class Client:
    """Connects, proves itself and the server, and stays connected until `close`. All methods may be used from any thread.

    A thread of its own takes from the socket whatever comes, so that the server's kernel never finds a living node that does not
    read, which it would give up like a dead one (see tcp.py).

    Args:
        server_addr: what `Server.start` returned.
        secret: the server's secret; default is to find it when the server is in this process.
        right: what the connection is for.
        timeout: seconds for connecting, and for each answer and each send later.
        gone: a file descriptor that is readable once nobody wants the connection any more; ends the attempts to connect.

    Raises:
        ChannelClosedError, AuthenticationError, ProtocolError: see `open_channel`.
        ConfigError: no secret was given, and the server is not in this process.
    """

    def __init__(
        self,
        server_addr: Sequence[Any],
        *,
        secret: bytes | None = None,
        right: Right = Right.REGISTER,
        timeout: float = 30.0,
        gone: int | None = None,
    ) -> None:
        self._address = (str(server_addr[0]), int(server_addr[1]))
        self._where = f"the reservation server at {self._address[0]}:{self._address[1]}"
        found = local_secrets.find(self._address) if secret is None else secret
        if found is None:
            raise ConfigError(f"no secret was given for {self._where}, which is not in this process", "Pass secret=server.secret.")
        self._secret = found
        self._right = right
        self._timeout = timeout
        self._sending = threading.Lock()
        # Guards what follows.
        self._changed = threading.Condition()
        self._ended: ReservationError | None = None
        self._inbox: deque[Message] = deque()
        self._answers: dict[int, Message] = {}
        self._calls = 0
        self._registered = False
        self._cluster: Message | None = None
        self._sock, self._channel, early = open_channel(self._address, found, right, timeout, gone)
        # Readable while there is something for receive_available.
        self._ready_in, self._ready_out = socket.socketpair()
        self._ready_in.setblocking(False)
        self._ready_out.setblocking(False)
        self._reader = threading.Thread(target=self._read_all, args=(early,), name="tfos-reservation-client", daemon=True)
        self._reader.start()

    def register(self, record: NodeRecord | Mapping[str, Any]) -> None:
        """Become a node of the cluster.

        Raises:
            DuplicateNodeError: another process has that name or executor id; the message names both.
            ReservationError: the server does not expect such a node.
            AuthenticationError: the connection has another right.
        """
        record = record if isinstance(record, NodeRecord) else NodeRecord.from_dict(record)
        self._call(Op.REGISTER, record=record.to_dict())
        self._registered = True

    def await_reservations(self, timeout: float = 600) -> list[NodeRecord]:
        """Wait until the cluster is complete; all nodes in the order of their executor ids.

        Raises:
            ReservationTimeoutError: it was not within `timeout` seconds.
            ChannelClosedError: the server is gone.
        """
        if not self._registered and self._cluster is None:
            self._send({"op": str(Op.AWAIT)})
        waited = f"the cluster was not complete within {timeout:g} s"
        return _records(self._wait_for(lambda: self._cluster, time.monotonic() + timeout, waited))

    def get_reservations(self) -> list[NodeRecord]:
        """The nodes that have registered so far, in the order of their executor ids."""
        return _records(self._call(Op.LIST))

    def request_stop(self) -> None:
        """Ask for the cluster to stop.

        Only a connection with `Right.STOP` may; one with another right opens a second one for it, since it knows the secret.
        """
        if self._right is Right.STOP:
            self._call(Op.STOP)
            return
        with Client(self._address, secret=self._secret, right=Right.STOP, timeout=self._timeout) as stopper:
            stopper.request_stop()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the server; waits while the server is busy, at most the client's timeout.

        Raises:
            ChannelClosedError: the server is gone, or did not take the message in time.
            ReservationError: the message is not JSON, is too large, or takes an op of the channel itself.
        """
        check_user_message(message)
        self._send(message)

    def receive(self, timeout: float | None = None) -> Message:
        """The next message of the server, in the order in which it sent them; `timeout` in seconds, None waits for ever.

        Raises:
            ReservationTimeoutError: there was none in time.
            ChannelClosedError: the connection is closed, and everything that came before was given out.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waited = f"no message came from {self._where}" + ("" if timeout is None else f" within {timeout:g} s")
        return self._wait_for(lambda: self._inbox.popleft() if self._inbox else None, deadline, waited)

    def receive_available(self) -> list[Message]:
        """The messages that are there; never waits. For loops that watch `fileno()`.

        Raises:
            ChannelClosedError: the connection is closed, and everything that came before was given out.
        """
        with self._changed:
            messages = list(self._inbox)
            self._inbox.clear()
            if self._ended is None:
                self._set_ready(False)
            elif not messages:
                raise _again(self._ended)
            return messages

    @property
    def local_host(self) -> str:
        """The address of this host that the server sees: what the driver can reach, the other nodes can reach."""
        return str(self._sock.getsockname()[0])

    def fileno(self) -> int:
        """A file descriptor that is readable while there are messages, or the end, for `receive_available`; -1 once closed."""
        return self._ready_in.fileno()

    def close(self) -> None:
        """Close the connection once the server has everything that was sent; threads that wait on it get ChannelClosedError.

        Takes at most about 2 seconds, when the server does not react. Again is no error.
        """
        with self._changed:
            self._end(ChannelClosedError(f"the connection to {self._where} was closed on this side"))
        # Closing a socket with unread data in it resets the connection, and what the kernel had not sent yet is lost with it. So
        # say that nothing more comes, and let the reader read to the end.
        _shutdown(self._sock, socket.SHUT_WR)
        self._reader.join(_CLOSE_S)
        _shutdown(self._sock, socket.SHUT_RDWR)
        self._reader.join(_CLOSE_S)
        # The file descriptor must not be given to somebody else while another thread still sends on it.
        held = self._sending.acquire(timeout=_CLOSE_S)
        for sock in (self._sock, self._ready_in, self._ready_out):
            close_quietly(sock)
        if held:
            self._sending.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _call(self, op: Op, **values: Any) -> Message:
        with self._changed:
            self._calls += 1
            call = self._calls
        self._send({"op": str(op), "call": call, **values})
        waited = f"{self._where} did not answer {str(op)!r} within {self._timeout:g} s"
        answer = self._wait_for(lambda: self._answers.pop(call, None), time.monotonic() + self._timeout, waited)
        if answer["op"] == Op.REFUSED:
            raise _REFUSALS.get(answer.get("kind"), ReservationError)(str(answer.get("error")))
        return answer

    def _send(self, message: Mapping[str, Any]) -> None:
        body = encode_message(message)
        deadline = time.monotonic() + self._timeout
        if not self._sending.acquire(timeout=self._timeout):
            raise self._too_slow()
        try:
            if self._ended is not None:
                raise _again(self._ended)
            # Small ones in one piece; a large body is not copied.
            head = self._channel.seal(body)
            for piece in (head + body,) if len(body) < RECEIVE_BYTES else (head, body):
                self._send_all(memoryview(piece), deadline)
        except OSError as exc:
            raise ChannelClosedError(f"the connection to {self._where} is broken: {exc.strerror or exc}") from exc
        finally:
            self._sending.release()

    def _send_all(self, data: memoryview, deadline: float) -> None:
        while data:
            try:
                data = data[self._sock.send(data) :]
            except (BlockingIOError, InterruptedError):
                if not wait_ready(self._sock, deadline=deadline, write=True):
                    # Half a frame is out, so that nothing that came after it could be understood.
                    _shutdown(self._sock, socket.SHUT_RDWR)
                    raise self._too_slow() from None

    def _too_slow(self) -> ChannelClosedError:
        return ChannelClosedError(f"{self._where} did not take a message within {self._timeout:g} s")

    def _wait_for(self, find: Callable[[], T | None], deadline: float | None, waited: str) -> T:
        """Wait until `find` gives something."""
        with self._changed:
            while (found := find()) is None:
                if self._ended is not None:
                    raise _again(self._ended)
                left = seconds_left(deadline)
                if left == 0:
                    raise ReservationTimeoutError(waited)
                self._changed.wait(left)
            return found

    def _read_all(self, messages: Sequence[Message]) -> None:
        """The reader's thread: until the server closes, or the connection breaks."""
        try:
            with self._changed:
                self._take(messages)
            while wait_ready(self._sock, deadline=None):
                data = self._sock.recv(RECEIVE_BYTES)
                if not data:
                    raise ChannelClosedError(f"{self._where} closed the connection")
                self._dispatch(data)
        except OSError as exc:
            error: ReservationError = ChannelClosedError(f"the connection to {self._where} is broken: {exc.strerror or exc}")
        except ProtocolError as exc:
            error = ProtocolError(f"{self._where} broke the protocol: {exc}", exc.hint)
        except ReservationError as exc:
            error = exc
        else:
            return
        with self._changed:
            self._end(error)

    def _dispatch(self, data: bytes) -> None:
        with self._changed:
            if self._ended is not None:
                return
            try:
                # Those before a bad frame must not be lost with it.
                for message in self._channel.receive(data):
                    self._take([message])
            finally:
                self._changed.notify_all()

    def _end(self, error: ReservationError) -> None:
        self._ended = self._ended or error
        self._set_ready(True)
        self._changed.notify_all()

    def _set_ready(self, ready: bool) -> None:
        with contextlib.suppress(OSError):  # it is full, empty, or closed already
            if ready:
                self._ready_out.send(b"\0")
            else:
                while self._ready_in.recv(4096):
                    pass

    def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(call := message.get("call"), int) and message["op"] in _ANSWERS:
                self._answers[call] = message
            elif message["op"] == Op.CLUSTER:
                self._cluster = message
            else:
                self._inbox.append(message)
                if len(self._inbox) == 1:
                    self._set_ready(True)


_ANSWERS = frozenset({Op.REGISTERED, Op.REFUSED, Op.RESERVATIONS, Op.STOPPING})


def _records(message: Message) -> list[NodeRecord]:
    nodes = inflated(message) if message["op"] == Op.CLUSTER else message.get("nodes")
    if not isinstance(nodes, list):
        raise ProtocolError(f"the reservation server sent {message['op']!r} without a list of nodes")
    return [NodeRecord.from_dict(node) for node in nodes]


def _again(error: ReservationError) -> ReservationError:
    """A fresh one for each thread that hears of it, since raising writes a traceback into the error."""
    return type(error)(error.message, error.hint)


def _shutdown(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)
