"""A feed task's connection to its executor's node: sends blocks, waits until their rows were consumed, receives results."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfos_core.errors import FeedError, FeedTimeoutError, TfosError
from tfos_core.feed import wire
from tfos_core.feed.failures import from_wire, to_wire
from tfos_core.feed.last_word import leave_word
from tfos_core.feed.packing import Packed
from tfos_core.feed.progress import ProgressReader
from tfos_core.feed.rendezvous import Descriptor, remove_folder
from tfos_core.feed.wire import HEADER_BYTES, Header, Kind, Mode, Op
from tfos_core.scratch import sweep_scratch

__all__ = ("Feeder", "Hello", "NodeClosedError", "NodeRefusedError")

_SEND_BUFFER_BYTES = 1 << 20
_CONNECT_TIMEOUT_S = 10.0


class NodeClosedError(Exception):
    """The node takes no more rows, which is not a failure."""


class NodeRefusedError(Exception):
    """The node can not take rows any more: `error` is why, and asking again does not help."""

    def __init__(self, error: TfosError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who a feed task is. `seq` counts the epochs of all train calls of a cluster from 0; `call` counts the train calls.

    `keep` (a `NodeCache`) makes the node keep the rows for later epochs.
    """

    mode: Mode
    generation: str
    partition: int
    attempt: int
    feed_timeout: float
    seq: int = 0
    call: int = 0
    keep: Mapping[str, Any] | None = None


class Feeder:
    """One connection; a context manager. All waits end after `feed_timeout` seconds without a row consumed on the node.

    Raises (every method):
        NodeClosedError: the node takes no more rows.
        NodeRefusedError: the node failed, is gone, belongs to another cluster, or consumed nothing for `feed_timeout` seconds.
    """

    def __init__(self, descriptor: Descriptor, hello: Hello, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._descriptor = descriptor
        self._hello = hello
        self._clock = clock
        self._folder = Path(descriptor.socket).parent
        self._progress = ProgressReader(Path(descriptor.progress))
        self._results: deque[tuple[Kind, Any]] = deque()
        self._drained: int | None = None
        self._socket: socket.socket | None = None
        self._poller = select.poll()
        self.already_drained = False

    def __enter__(self) -> Feeder:
        self._raise_known_timeout()
        sock = self._connect()
        self._socket = sock
        self._poller.register(sock, select.POLLIN)
        self._send([wire.pack_json(Op.HELLO, asdict(self._hello))])
        header = self._read_header()
        if header.op is not Op.WELCOME:
            raise NodeRefusedError(FeedError(f"the node {self._descriptor.node} answered {header.op.name} to a greeting"))
        welcome = self._read_json(header)
        if welcome.get("generation") != self._hello.generation:
            raise NodeRefusedError(FeedError(f"the node {self._descriptor.node} belongs to another cluster"))
        self.already_drained = bool(welcome.get("drained"))
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, packed: Packed) -> None:
        """Send one block; waits while the node's byte budget is used up."""
        views = [memoryview(buffer).cast("B") for buffer in packed.buffers if memoryview(buffer).nbytes]
        length = sum(view.nbytes for view in views)
        self._send([wire.pack_header(Op.BLOCK, packed.kind, packed.rows, length), *views])

    def finish(self) -> None:
        """No more blocks follow."""
        self._send([wire.pack_header(Op.EOS)])

    def await_drained(self) -> int:
        """Wait until every row was consumed; how many there were."""
        while self._drained is None:
            self._handle_frame()
        return self._drained

    def results(self) -> Iterator[tuple[Kind, Any]]:
        """The results that have arrived, without waiting for more."""
        while self._results:
            yield self._results.popleft()

    def remaining_results(self) -> Iterator[tuple[Kind, Any]]:
        """All results until the node has answered every row."""
        while self._drained is None:
            self._handle_frame()
            yield from self.results()

    # --- connecting

    def _connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            sock.settimeout(min(_CONNECT_TIMEOUT_S, self._hello.feed_timeout))
            sock.connect(self._descriptor.socket)
            sock.setblocking(False)
        except OSError as exc:
            sock.close()
            self._tidy_up()
            raise NodeRefusedError(
                FeedError(
                    f"the node {self._descriptor.node} is gone: {exc}",
                    "Look at its log: tfos logs RUN_ID --node ...",
                    self._descriptor.node,
                )
            ) from exc
        return sock

    def _tidy_up(self) -> None:
        """A supervisor that was killed leaves its folder. Whoever finds that removes it, and notes why for the tasks to come."""
        if not self._descriptor.is_alive():
            leave_word(os.environ, self._descriptor.generation, self._descriptor.node, "its supervisor was killed")
            remove_folder(self._folder)
            sweep_scratch(os.environ)

    def _broken(self) -> Exception:
        """The connection broke: ask again, since whoever holds the socket now knows why."""
        hello = {**asdict(self._hello), "mode": Mode.ASK}
        node = self._descriptor.node
        try:
            with self._connect() as sock:
                sock.settimeout(_CONNECT_TIMEOUT_S)
                sock.sendall(wire.pack_json(Op.HELLO, hello))
                header = wire.read_header(sock)
                if header is not None and header.op is Op.CLOSED:
                    return NodeClosedError(node)
                if header is not None and header.op is Op.FAILED:
                    return NodeRefusedError(from_wire(wire.read_json(sock, header.length)))
        except NodeRefusedError as exc:
            return exc
        except OSError as exc:
            return NodeRefusedError(FeedError(f"the node {node} is gone: {exc}", None, node))
        # The node lives and broke only this connection: another attempt has taken the partition over.
        return FeedError(f"the node {node} let go of partition {self._hello.partition}", None, node, self._hello.partition)

    # --- moving bytes

    def _send(self, buffers: list[Any]) -> None:
        views = deque(memoryview(buffer).cast("B") for buffer in buffers)
        while views:
            if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._handle_frame()
                continue
            try:
                sent = self._sock.sendmsg(list(views)[:64])
            except BlockingIOError:
                continue
            except OSError as exc:
                raise self._farewell() from exc
            while views and sent >= views[0].nbytes:
                sent -= views.popleft().nbytes
            if sent:
                views[0] = views[0][sent:]

    def _farewell(self) -> Exception:
        """Sending failed: a farewell that arrived before is the reason."""
        try:
            while True:
                self._handle_frame()
        except (NodeClosedError, NodeRefusedError, FeedError) as exc:
            return exc

    def _handle_frame(self) -> None:
        header = self._read_header()
        if header.op is Op.RESULTS:
            self._results.append((header.kind, self._read(header.length)))
        elif header.op is Op.DRAINED:
            self._drained = int(self._read_json(header)["rows"])
        else:
            raise NodeRefusedError(FeedError(f"the node {self._descriptor.node} sent an unexpected {header.op.name}"))

    def _read_header(self) -> Header:
        header = wire.unpack_header(bytes(self._read(HEADER_BYTES)))
        if header.op is Op.CLOSED:
            raise NodeClosedError(self._descriptor.node)
        if header.op is Op.FAILED:
            raise NodeRefusedError(from_wire(self._read_json(header)))
        return header

    def _read_json(self, header: Header) -> dict[str, Any]:
        return wire.unpack_json(self._read(header.length))

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            try:
                count = self._sock.recv_into(view)
            except BlockingIOError:
                self._wait(select.POLLIN)
                continue
            except OSError as exc:
                raise self._broken() from exc
            if count == 0:
                raise self._broken()
            view = view[count:]
        return data

    @property
    def _sock(self) -> socket.socket:
        if self._socket is None:
            raise FeedError("the feed connection is closed")
        return self._socket

    # --- waiting

    def _wait(self, events: int) -> int:
        """Wait for the socket; the node's progress is read only when a wait ends, so nothing polls."""
        self._poller.modify(self._sock, events)
        started = self._clock()
        deadline = started + self._hello.feed_timeout
        while True:
            left = deadline - self._clock()
            for _, ready in self._poller.poll(max(0, int(left * 1000) + 1)):
                return ready if ready & (select.POLLIN | select.POLLOUT) else select.POLLIN
            deadline = max(started, self._progress.last_consumed()) + self._hello.feed_timeout
            if deadline <= self._clock():
                raise NodeRefusedError(self._timed_out())

    def _timed_out(self) -> FeedTimeoutError:
        hello = self._hello
        error = FeedTimeoutError(
            f"node {self._descriptor.node} consumed no row for {hello.feed_timeout:g} seconds (partition {hello.partition})",
            "Does the function still call next_batch()? Raise feed_timeout when one step may take longer.",
            self._descriptor.node,
            hello.partition,
        )
        self._note_timeout(error)
        return error

    def _timeout_file(self) -> Path:
        return self._folder / f"timeout-{self._hello.generation}-{self._hello.seq}.json"

    def _note_timeout(self, error: FeedTimeoutError) -> None:
        """Tell later feed tasks (by a file, which needs nobody) and the driver (through the node, if it still listens)."""
        path = self._timeout_file()
        temporary = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(to_wire(error)), encoding="utf-8")
            temporary.replace(path)
        hello = {**asdict(self._hello), "mode": Mode.GAVE_UP, "error": to_wire(error)}
        with contextlib.suppress(OSError, NodeRefusedError), self._connect() as sock:
            sock.send(wire.pack_json(Op.HELLO, hello))

    def _raise_known_timeout(self) -> None:
        try:
            known: Mapping[str, Any] = json.loads(self._timeout_file().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        raise NodeRefusedError(from_wire(known))
