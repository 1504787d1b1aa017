"""One feed task's connection, at the node: a thread that reads its blocks within the byte budget."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_core.errors import FeedError
from tfos_core.feed import wire
from tfos_core.feed.blocks import decode, decode_schema
from tfos_core.feed.failures import to_wire
from tfos_core.feed.inbox import Stream
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.packing import Packed
from tfos_core.feed.wire import Header, Kind, Mode, Op

if TYPE_CHECKING:
    from tfos_core.feed.hub import FeedHub

__all__ = ("Intake",)

logger = logging.getLogger(__name__)

_HELLO_TIMEOUT_S = 10.0


class Intake(threading.Thread):
    """Serves one connection until it ends; whatever the feed task sent and was not consumed then is dropped and reported."""

    def __init__(self, connection: socket.socket, hub: FeedHub) -> None:
        super().__init__(name="tfos-feed-intake", daemon=True)
        self._connection = connection
        self._hub = hub
        self._sending = threading.Lock()
        self._schema: Any = None
        self._call = 0
        self.stream: Stream | None = None

    def run(self) -> None:
        """The thread's body."""
        try:
            with self._connection:
                self._serve()
        except (OSError, FeedError) as exc:
            logger.debug("feed connection ended: %s", exc)
        finally:
            self._finish()

    def say_goodbye(self, frame: bytes) -> None:
        """The hub ends: tell the feed task why, and read no more."""
        self._send(frame)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def release(self) -> None:
        """Another attempt takes over: the connection breaks, which reports what was consumed."""
        self.shut()

    def shut(self) -> None:
        """Break the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        self._connection.settimeout(_HELLO_TIMEOUT_S)
        header = wire.read_header(self._connection)
        if header is None or header.op is not Op.HELLO:
            return
        hello = wire.read_json(self._connection, header.length)
        self._connection.settimeout(None)
        mode = Mode(hello["mode"])
        if mode is Mode.GAVE_UP:
            self._hub.uplink.send({"op": "feed.failed", "error": hello["error"]})
            return
        if hello["generation"] != self._hub.generation:
            self._send(wire.pack_json(Op.FAILED, to_wire(self._wrong_generation(str(hello["generation"])))))
            return
        goodbye = self._hub.admit(self)
        if goodbye is not None:
            self._send(goodbye)
            if mode is Mode.TRAIN:
                self._hub.report("feed.discarded", hello["seq"], partition=hello["partition"], attempt=hello["attempt"])
            return
        if mode is Mode.ASK:
            self._send(wire.pack_json(Op.WELCOME, {"generation": self._hub.generation}))
            return
        if self._welcome(mode, hello):
            self._receive()

    def _wrong_generation(self, theirs: str) -> FeedError:
        return FeedError(
            f"the node {self._hub.node} belongs to the cluster {self._hub.generation}, but the feed is for {theirs}",
            "Call shutdown() on the earlier cluster before starting another one in the same Spark application.",
            self._hub.node,
        )

    def _welcome(self, mode: Mode, hello: dict[str, Any]) -> bool:
        seq, partition, attempt = hello["seq"], hello["partition"], hello["attempt"]
        skip = 0
        drained = False
        if mode is Mode.TRAIN and attempt > 0:
            self._hub.report("feed.ask", seq, partition=partition, attempt=attempt)
            grant = self._hub.await_grant(seq, partition, attempt, hello["feed_timeout"])
            if grant is None:
                return False
            skip, drained = int(grant["rows"]), bool(grant["drained"])
        self._call = hello["call"]
        keep = hello.get("keep")
        if keep is not None:
            self._hub.cache.begin(seq, NodeCache.from_dict(keep))
        stream = Stream(
            seq=seq,
            partition=partition,
            attempt=attempt,
            infer=mode is Mode.INFER,
            keeps=keep is not None,
            on_drained=self._on_drained,
            send_results=self._send_results,
            skip=skip,
        )
        if mode is Mode.INFER and not self._hub.turns.wait(self):
            return False
        welcome = {"generation": self._hub.generation, "node": self._hub.node, "drained": drained}
        if mode is Mode.TRAIN:
            self._hub.inbox.end_epochs_before(seq)
            if not drained:
                if attempt == 0:
                    self._hub.report("feed.claim", seq, partition=partition, attempt=attempt)
                self.stream = stream
        else:
            self.stream = stream
        self._send(wire.pack_json(Op.WELCOME, welcome))
        return not drained

    def _receive(self) -> None:
        stream = self.stream
        while stream is not None and (header := wire.read_header(self._connection)) is not None:
            if header.op is Op.EOS:
                self._hub.inbox.finish(stream)
            elif header.op is Op.BLOCK:
                if not self._receive_block(stream, header):
                    return
            else:
                raise FeedError(f"a feed task sent a frame {header.op.name} that only a node sends")

    def _receive_block(self, stream: Stream, header: Header) -> bool:
        if header.kind is Kind.ARROW_SCHEMA:
            self._schema = decode_schema(self._payload(header.length))
            return True
        # Bytes are taken from the budget before they are read, so what waits in the socket is all that comes on top.
        if not self._hub.budget.reserve(header.length):
            return False
        try:
            payload = self._payload(header.length)
            if not stream.infer:
                self._hub.first_block(self._call, stream.seq, lambda: decode(header.kind, payload, self._schema))
        except BaseException:
            self._hub.budget.release(header.length)
            raise
        self._hub.inbox.put(stream, header.kind, payload, header.length, self._schema)
        return True

    def _payload(self, length: int) -> Any:
        payload: Any = np.empty(length, dtype=np.uint8)
        wire.read_into(self._connection, memoryview(payload))
        return payload

    def _on_drained(self, stream: Stream) -> None:
        if not stream.infer:
            self._hub.report("feed.drained", stream.seq, partition=stream.partition, attempt=stream.attempt, rows=stream.consumed)
        self._hub.turns.give_back(self)
        self._send(wire.pack_json(Op.DRAINED, {"rows": stream.consumed}))

    def _send_results(self, packed: Packed) -> None:
        length = sum(memoryview(buffer).nbytes for buffer in packed.buffers)
        with self._sending:
            self._connection.sendall(wire.pack_header(Op.RESULTS, packed.kind, packed.rows, length))
            for buffer in packed.buffers:
                self._connection.sendall(buffer)

    def _send(self, frame: bytes) -> None:
        # The feed task may be gone; its own end tells the driver what became of it.
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(frame)

    def _finish(self) -> None:
        self._hub.leave(self)
        try:
            self._let_go()
        finally:
            # Only now: whoever is served next must not meet rows of this one.
            self._hub.turns.give_back(self)

    def _let_go(self) -> None:
        stream = self.stream
        if stream is None or stream.drained:
            return
        consumed = self._hub.inbox.drop(stream)
        if not stream.infer and self._hub.is_open:
            self._hub.report("feed.released", stream.seq, partition=stream.partition, attempt=stream.attempt, rows=consumed)
        elif not stream.infer:
            self._hub.report("feed.discarded", stream.seq, partition=stream.partition, attempt=stream.attempt)
