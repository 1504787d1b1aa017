"""The node's end of the feed, in the TensorFlow process: accepts feed tasks, keeps their blocks, reports what was consumed."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.errors import TfosError
from tfos_core.feed import wire
from tfos_core.feed.budget import ByteBudget
from tfos_core.feed.cache import BlockCache, local_folder
from tfos_core.feed.elements import describe
from tfos_core.feed.equal_steps import EqualSteps
from tfos_core.feed.failures import to_wire
from tfos_core.feed.inbox import Inbox, Stream
from tfos_core.feed.intake import Intake
from tfos_core.feed.progress import ProgressWriter
from tfos_core.feed.refusal import Uplink
from tfos_core.feed.turns import Turns
from tfos_core.feed.wire import Op

__all__ = ("DEFAULT_BUDGET_BYTES", "FeedHub", "Uplink", "report_interval_s")

DEFAULT_BUDGET_BYTES = 64 << 20
# Reports of rows consumed, at most this often from a node, and in all so many a second, each of which costs the driver some 0.1 ms;
# what a partition consumed is always reported when it is drained.
_REPORT_INTERVAL_S = 0.25
_REPORTS_PER_SECOND = 100


def report_interval_s(nodes: int) -> float:
    """Seconds between two reports of one of so many nodes."""
    return max(_REPORT_INTERVAL_S, nodes / _REPORTS_PER_SECOND)


class FeedHub:
    """What `ctx.mgr` is: `start()` accepts feed tasks, `DataFeed(hub)` takes their rows, `close()` or `fail()` ends it.

    Args:
        listener: the Unix socket that the supervisor listens on; stays open.
        node: this node's name, `worker:0`.
        generation: the cluster's; feed tasks of another one are refused.
        uplink: the way to the driver's FeedCoordinator.
        budget_bytes: how many bytes of rows to hold before feed tasks have to wait.
        progress_path: where feed tasks look when rows were last consumed.
        equal_steps: whether all nodes make the same number of steps with `as_dataset`.
        nodes: how many there are; the more, the less often each of them reports.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        node: str,
        generation: str,
        uplink: Uplink,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        progress_path: Path,
        equal_steps: bool = False,
        nodes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self.generation = generation
        self.uplink = uplink
        self.budget = ByteBudget(budget_bytes)
        self.cache = BlockCache(local_folder(os.environ))
        self.inbox = Inbox(self.budget, on_consumed=self._on_consumed, cache=self.cache)
        self.equal_steps = EqualSteps(self.inbox, report=self.report, on_left_over=self._on_left_over) if equal_steps else None
        self.turns = Turns()
        #: Whether the cluster was asked to stop; what is in flight is still fed.
        self.stop_requested = False
        self._listener = listener
        self._progress = ProgressWriter(progress_path, clock=clock)
        self._clock = clock
        self._report_interval_s = report_interval_s(nodes)
        self._lock = threading.Condition()
        self._intakes: set[Intake] = set()
        self._grants: dict[tuple[int, int, int], dict[str, Any]] = {}
        self._goodbye: bytes | None = None
        self._rows: dict[int, int] = {}
        self._steps = 0
        self._left_over = 0
        self._forget_at = -1
        self._reported = 0.0
        self._spec: dict[str, Any] | None = None
        self._spec_calls: set[int] = set()
        self._no_rows_at_all = False
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread: threading.Thread | None = None

    # --- life

    def start(self) -> None:
        """Begin to accept feed tasks."""
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._accept_loop, name="tfos-feed-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The user's function takes no more rows: open and later feed tasks are told CLOSED and end normally. Idempotent."""
        self._end(wire.pack_json(Op.CLOSED, {"node": self.node, "generation": self.generation}))

    def fail(self, error: Mapping[str, Any]) -> None:
        """The node failed: open and later feed tasks are told the error. The first call of `close` and `fail` counts."""
        self._end(wire.pack_json(Op.FAILED, {"message": f"node {self.node} failed", **error}))

    def give_up(self, error: TfosError) -> None:
        """The feed can not go on: tell the driver (before the node's own end does), then every feed task."""
        self.uplink.send({"op": "feed.failed", "error": to_wire(error)})
        self.fail(to_wire(error))

    def stop(self) -> None:
        """Stop accepting, for tests and for a supervisor in the same process; idempotent."""
        self.close()
        if self._thread is not None:
            with contextlib.suppress(OSError):
                self._stop_writer.send(b"x")
            self._thread.join(5)
            self._thread = None
            for intake in self.intakes():
                intake.shut()
                intake.join(5)
            self._stop_reader.close()
            self._stop_writer.close()
            self._progress.close()

    @property
    def is_open(self) -> bool:
        """Whether neither `close` nor `fail` was called."""
        return self._goodbye is None

    # --- driver -> node

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Handle one message of the driver's FeedCoordinator; unknown ones are ignored, for a newer driver."""
        match message.get("op"):
            case "feed.end":
                self._on_end(message)
            case "feed.end_of_feed":
                self._note_no_rows()
                self.inbox.end_feed()
            case "feed.grant":
                with self._lock:
                    self._grants[message["seq"], message["partition"], message["attempt"]] = dict(message)
                    self._lock.notify_all()
            case "feed.release":
                self._on_release(message)
            case "feed.cache":
                self.report("feed.cached", message["seq"], **self.cache.status(message["seq"]))
            case "feed.replay":
                self._on_replay(message)
            case "feed.forget":
                self.cache.forget()
            case "feed.stop_requested":
                self.stop_requested = True
            case "feed.steps":
                if self.equal_steps is not None:
                    self.equal_steps.on_grant(message)
            case _:
                pass

    def _on_end(self, message: Mapping[str, Any]) -> None:
        spec = message.get("spec")
        with self._lock:
            if self._spec is None and spec is not None:
                self._spec = dict(spec)
                self._lock.notify_all()
        if spec is None:
            self._note_no_rows()
        self.inbox.end_epochs_before(int(message["seq"]) + 1)
        if message.get("final"):
            self.inbox.end_feed()

    def _on_release(self, message: Mapping[str, Any]) -> None:
        """Another attempt takes a partition over: forget what this one did not consume, and say how far it came."""
        seq, partition, attempt = message["seq"], message["partition"], message["attempt"]
        for intake in self.intakes():
            stream = intake.stream
            if stream is not None and (stream.seq, stream.partition, stream.attempt) == (seq, partition, attempt):
                intake.release()
                return
        self.report("feed.released", seq, partition=partition, attempt=attempt, rows=0, unknown=True)

    def _on_replay(self, message: Mapping[str, Any]) -> None:
        """The driver wants an epoch from the cache; it says when the next one begins, as it does when Spark feeds."""
        seq, shuffle = int(message["seq"]), message["shuffle"]
        if not message["again"]:
            self._forget_at = seq
        blocks = self.cache.order(int(message["kept"]), None if shuffle is None else f"{shuffle}:{message['epoch']}:{self.node}")
        self.inbox.end_epochs_before(seq)
        self.inbox.replay(Stream(seq=seq, partition=-1, attempt=0, infer=False, on_drained=self._on_replayed), blocks)

    def _on_replayed(self, stream: Stream) -> None:
        if stream.seq == self._forget_at:
            self.cache.forget()
        self.report("feed.drained", stream.seq, partition=-1, rows=stream.consumed)

    # --- for intakes

    def admit(self, intake: Intake) -> bytes | None:
        """Take part; or the frame to answer with, when the hub is closed."""
        with self._lock:
            if self._goodbye is None:
                self._intakes.add(intake)
            return self._goodbye

    def leave(self, intake: Intake) -> None:
        """A connection has ended."""
        with self._lock:
            self._intakes.discard(intake)

    def intakes(self) -> tuple[Intake, ...]:
        """The open connections."""
        with self._lock:
            return tuple(self._intakes)

    def await_grant(self, seq: int, partition: int, attempt: int, timeout: float) -> dict[str, Any] | None:
        """What the driver's ledger says about a repeated attempt; None when it said nothing in time or the hub was closed."""
        key = (seq, partition, attempt)
        with self._lock:
            self._lock.wait_for(lambda: key in self._grants or self._goodbye is not None, timeout)
            return self._grants.pop(key, None)

    def report(self, op: str, seq: int, **fields: Any) -> None:
        """Tell the driver something, with the rows that this node consumed of the epoch, and what it did in all epochs so far."""
        done = {"node_rows": self._rows.get(seq, 0), "steps_done": self._steps, "left_over": self._left_over}
        self.uplink.send({"op": op, "seq": seq, **fields, **done})

    def first_block(self, call: int, seq: int, block: Callable[[], Any]) -> None:
        """Describe the elements of the first block of a train call, for nodes that get none."""
        with self._lock:
            if call in self._spec_calls:
                return
            self._spec_calls.add(call)
        spec = describe(block())
        with self._lock:
            self._spec = self._spec or spec
            self._lock.notify_all()
        self.report("feed.spec", seq, spec=spec)

    # --- for DataFeed

    def count_step(self, steps: int = 1) -> None:
        """Batches with rows are handed out."""
        self._steps += steps

    def await_spec(self) -> dict[str, Any] | None:
        """The element structure of what is fed; waits for the first block. None when the feed ended without any row."""
        with self._lock:
            self._lock.wait_for(lambda: self._spec is not None or self._no_rows_at_all or self._goodbye is not None)
            return self._spec

    # --- inner

    def _note_no_rows(self) -> None:
        with self._lock:
            self._no_rows_at_all = self._spec is None
            self._lock.notify_all()

    def _on_left_over(self, rows: int) -> None:
        self._left_over += rows

    def _on_consumed(self, stream: Stream, rows: int) -> None:
        self._progress.advance(rows)
        self._rows[stream.seq] = self._rows.get(stream.seq, 0) + rows
        now = self._clock()
        if not stream.infer and now - self._reported >= self._report_interval_s:
            self._reported = now
            self.report("feed.progress", stream.seq)

    def _end(self, goodbye: bytes) -> None:
        with self._lock:
            if self._goodbye is not None:
                return
            self._goodbye = goodbye
            intakes = tuple(self._intakes)
            self._lock.notify_all()
        self.inbox.close()
        self.cache.close()
        self.turns.close()
        for intake in intakes:
            intake.say_goodbye(goodbye)
        seq = max(self._rows, default=0)
        with contextlib.suppress(Exception):
            # The driver may be gone already; the node's end does not depend on it.
            self.report("feed.closed", seq, failed=goodbye[1] == Op.FAILED)

    def _accept_loop(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._stop_reader, select.POLLIN)
        stop = self._stop_reader.fileno()
        uid = os.getuid()
        while stop not in {descriptor for descriptor, _ in poller.poll()}:
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                if wire.peer_is_me(connection, uid):
                    Intake(connection, self).start()
                else:
                    connection.close()
