"""The server that the nodes of one cluster register with, and that the driver talks to them through."""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tfos_core.errors import (
    ChannelClosedError,
    ClusterStateError,
    ConfigError,
    DuplicateNodeError,
    ProtocolError,
    ReservationError,
    TfosError,
)
from tfos_core.reservation import local_secrets
from tfos_core.reservation.address import HOST_VARIABLE, PORT_VARIABLE, default_host, listen, parse_ports
from tfos_core.reservation.connection import Connection
from tfos_core.reservation.handshake import SECRET_BYTES, Right, new_secret
from tfos_core.reservation.loop import Limits, ServerLoop
from tfos_core.reservation.messages import RESERVED, Message, Op, check_user_message, encode_message
from tfos_core.reservation.record import NodeRecord, deflated
from tfos_core.reservation.registry import Reservations

__all__ = ("Server",)

logger = logging.getLogger(__name__)

_STATUS_CHECK_S = 1.0


class Server:
    """Collects the nodes of a cluster, tells each of them about all, and carries messages both ways.

    Args:
        count: how many nodes there will be, or the names of all of them (`worker:0`, ...), which makes for better errors.
        secret: what peers must know, 32 bytes. Default is fresh random bytes, which a `Client` in this process finds by itself.
        on_message: called with (node, message) for every message of a registered node.
        on_registered: called with the record of every node that has registered, before the cluster is announced.
        on_disconnect: called with the name of a registered node whose connection ended while the server was running.
        on_stop: called when a peer asks the cluster to stop.
        host: the address to advertise. `TFOS_SERVER_HOST` goes first; default is the address of this host's name, or loopback.
        limits: what peers may cost.
        environ: where `TFOS_SERVER_HOST` and `TFOS_SERVER_PORT` (a port or a range) are looked up; default is `os.environ`.

    Callbacks run in the server's only thread, one at a time and in the order of events: they must not block. An error that one
    raises is logged and ends nothing, except that a ProtocolError of `on_message` drops the node that sent the message.
    """

    def __init__(
        self,
        count: int | Sequence[str],
        *,
        secret: bytes | None = None,
        on_message: Callable[[str, Message], None] | None = None,
        on_registered: Callable[[NodeRecord], None] | None = None,
        on_disconnect: Callable[[str], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        host: str | None = None,
        limits: Limits | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if secret is not None and len(secret) < SECRET_BYTES:
            raise ConfigError(f"the secret has {len(secret)} bytes, and at least {SECRET_BYTES} are needed")
        if isinstance(count, int):
            self._reservations = Reservations(count)
        else:
            self._reservations = Reservations(len(count), expected=count)
        self.stop_requested = threading.Event()
        self._secret = new_secret() if secret is None else secret
        self._shares_secret = secret is None
        self._on_message = on_message
        self._on_registered = on_registered
        self._on_disconnect = on_disconnect
        self._on_stop = on_stop
        self._host = host
        self._limits = limits or Limits()
        self._environ = os.environ if environ is None else environ
        # Guards what follows, and wakes await_reservations.
        self._changed = threading.Condition()
        self._nodes: dict[str, Connection] = {}
        self._address: tuple[str, int] | None = None
        self._loop: ServerLoop | None = None
        self._failure: Exception | None = None
        self._published = False
        self._announcement = b""
        self._stopped = False
        # Belongs to the loop's thread.
        self._watchers: set[Connection] = set()
        self._stoppers: set[Connection] = set()

    @property
    def reservations(self) -> Reservations:
        """The nodes registered so far."""
        return self._reservations

    @property
    def secret(self) -> bytes:
        """What peers must know."""
        return self._secret

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for nodes to connect to. Raises ClusterStateError before `start`."""
        if self._address is None:
            raise ClusterStateError("the reservation server has no address before it is started")
        return self._address

    def start(self) -> tuple[str, int]:
        """Listen, and return the address for nodes to connect to.

        Raises:
            ConfigError: `TFOS_SERVER_PORT` is neither a port nor a range.
            ReservationError: no port is free; the message names the ports and who holds them, where that is visible.
            ClusterStateError: it was started before.
        """
        ports = parse_ports(self._environ.get(PORT_VARIABLE, ""))
        host = (self._environ.get(HOST_VARIABLE) or self._host or default_host()).strip().strip("[]")
        with self._changed:
            if self._loop is not None or self._stopped:
                raise ClusterStateError("a reservation server can be started only once", "Make a new Server.")
            listener = listen(host, ports)
            self._address = (host, listener.getsockname()[1])
            self._loop = ServerLoop(listener, self._secret, self, self._limits)
            self._loop.start()
        if self._shares_secret:
            local_secrets.remember(self._address, self._secret)
        logger.info("reservation server listens on %s:%d for %d nodes", *self._address, self._reservations.required)
        return self._address

    def await_reservations(
        self, sc: object = None, status: Mapping[str, object] | None = None, timeout: float = 600
    ) -> list[NodeRecord]:
        """Wait until every node has registered and was told about the others; the nodes in the order of their executor ids.

        Args:
            sc: not used; there for programs of 2022.
            status: a start-up error of another thread under the key `error`, as programs of 2022 give it. A mapping can not wake
                anybody and is looked at once a second; `fail` is heard at once.
            timeout: seconds.

        Raises:
            ReservationTimeoutError: some nodes did not come; the message names them.
            ReservationError: the server was stopped, or `status` has an error.
            TfosError: the one given to `fail`.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            if self._loop is None and not self._stopped:
                raise ClusterStateError("nodes can not register with a reservation server that was not started", "Call start().")
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._published:
                    return self._reservations.get()
                if status and status.get("error"):
                    raise ReservationError(f"the cluster could not start: {status['error']}")
                if self._stopped:
                    raise ReservationError("the reservation server was stopped before all nodes had registered")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._reservations.timeout_error(timeout)
                self._changed.wait(left if status is None else min(left, _STATUS_CHECK_S))

    def fail(self, error: TfosError) -> None:
        """Make `await_reservations` raise this error, now or when it is called; the first error stays."""
        self._fail(error)

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        """Queue a message for a node; from any thread, never waits.

        Raises:
            ChannelClosedError: the node is not, or no longer, connected.
            ReservationError: the message is not JSON, is too large, or takes an op of the channel itself.
        """
        check_user_message(message)
        body = encode_message(message)
        with self._changed:
            connection, loop = self._nodes.get(node), self._loop
        if connection is None or loop is None:
            raise ChannelClosedError(f"node {node} is not connected to the driver")
        connection.push(body)
        loop.touch(connection)

    def broadcast(self, message: Mapping[str, Any]) -> None:
        """Queue a message for every connected node; from any thread, never waits."""
        check_user_message(message)
        body = encode_message(message)
        with self._changed:
            connections, loop = list(self._nodes.values()), self._loop
        if loop is not None:
            self._push(loop, connections, body)

    def tell_stoppers(self, message: Mapping[str, Any]) -> None:
        """Queue a message for everybody who has asked the cluster to stop and is still there; from any thread, never waits."""
        check_user_message(message)
        body = encode_message(message)
        with self._changed:
            connections, loop = list(self._stoppers), self._loop
        if loop is not None:
            self._push(loop, connections, body)

    def stop(self) -> None:
        """Deliver what is queued (at most a second), close every connection, and end the thread; again is no error."""
        with self._changed:
            self._stopped = True
            loop, self._loop = self._loop, None
            self._nodes.clear()
            self._changed.notify_all()
        if loop is not None:
            local_secrets.forget(self.address)
            loop.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    # What the loop tells (loop.Handler): always in its thread.

    def received(self, connection: Connection, message: Message) -> None:
        """An authenticated peer said something."""
        match message["op"]:
            case Op.REGISTER:
                self._register(connection, message)
            case Op.AWAIT:
                if self._allows(connection, message, Right.REGISTER, Right.READ):
                    self._watch(connection)
            case Op.LIST:
                if self._allows(connection, message, Right.REGISTER, Right.READ):
                    self._answer(connection, message, Op.RESERVATIONS, nodes=self._node_dicts())
            case Op.STOP:
                if self._allows(connection, message, Right.STOP):
                    self._answer(connection, message, Op.STOPPING)
                    logger.info("%s asked the cluster to stop", connection)
                    with self._changed:
                        self._stoppers.add(connection)
                    self.stop_requested.set()
                    self._call(self._on_stop)
            case op if op in RESERVED:
                raise ProtocolError(f"it sent {op!r}, which is not for nodes to send")
            case op if not connection.node:
                raise ProtocolError(f"it sent {op!r:.40} without being a registered node")
            case _:
                self._call(functools.partial(self._on_message, connection.node, message) if self._on_message else None)

    def dropped(self, connection: Connection) -> None:
        """An authenticated peer is gone."""
        self._watchers.discard(connection)
        with self._changed:
            self._stoppers.discard(connection)
        if not connection.node:
            return
        with self._changed:
            was_running = self._nodes.pop(connection.node, None) is not None
        if was_running and self._on_disconnect:
            self._call(functools.partial(self._on_disconnect, connection.node))

    def crashed(self, error: Exception) -> None:
        """The loop ended by a bug."""
        self._fail(ReservationError(f"the reservation server failed: {error!r}"))

    def _register(self, connection: Connection, message: Message) -> None:
        if not self._allows(connection, message, Right.REGISTER):
            return
        if connection.node:
            self._refuse(connection, message, "state", f"this connection already belongs to {connection.node}")
            return
        try:
            record = NodeRecord.from_dict(message.get("record"))
            self._reservations.add(record)
        except DuplicateNodeError as exc:
            self._refuse(connection, message, "duplicate", str(exc))
            return
        except ReservationError as exc:
            self._refuse(connection, message, "record", str(exc))
            return
        connection.node = record.name
        self._answer(connection, message, Op.REGISTERED)
        with self._changed:
            if not self._stopped:
                self._nodes[record.name] = connection
        if self._on_registered:
            self._call(functools.partial(self._on_registered, record))
        self._watch(connection)
        if self._reservations.done():
            self._publish()

    def _watch(self, connection: Connection) -> None:
        """Tell a connection about the cluster when it is complete, or now if it is."""
        if not self._published:
            self._watchers.add(connection)
        elif (loop := self._loop) is not None:
            self._push(loop, [connection], self._cluster_body())

    def _publish(self) -> None:
        # The announcement is queued before anybody who waits for it hears of it, so that their messages come after it.
        if (loop := self._loop) is not None:
            self._push(loop, list(self._watchers), self._cluster_body())
        self._watchers.clear()
        with self._changed:
            self._published = True
            self._changed.notify_all()

    def _cluster_body(self) -> bytes:
        # Every node gets it, so that its size counts twice over: a thousand nodes would be sent 150 MB of text.
        if not self._announcement:
            self._announcement = encode_message({"op": str(Op.CLUSTER), **deflated(self._node_dicts())})
        return self._announcement

    def _node_dicts(self) -> list[dict[str, Any]]:
        return [record.to_dict() for record in self._reservations.get()]

    def _allows(self, connection: Connection, message: Message, *rights: Right) -> bool:
        if connection.channel.right in rights:
            return True
        text = f"a connection with the right to {connection.channel.right} can not ask for {message['op']!r}"
        self._refuse(connection, message, "right", text)
        return False

    def _refuse(self, connection: Connection, message: Message, kind: str, text: str) -> None:
        logger.warning("refused %r of %s: %s", message["op"], connection, text)
        self._answer(connection, message, Op.REFUSED, kind=kind, error=text)

    def _answer(self, connection: Connection, message: Message, op: Op, **values: Any) -> None:
        call = message.get("call")
        reply = {"op": str(op), "call": call if isinstance(call, int) else None, **values}
        if (loop := self._loop) is not None:
            self._push(loop, [connection], encode_message(reply))

    def _push(self, loop: ServerLoop, connections: Sequence[Connection], body: bytes) -> None:
        for connection in connections:
            connection.push(body)
            loop.touch(connection)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _call(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            return
        try:
            callback()
        except ProtocolError:
            raise
        except Exception:
            logger.exception("a callback of the reservation server failed")
