"""The driver's end of the feed: runs feed jobs, keeps the ledger, tells nodes when an epoch has ended."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfos_core.errors import (
    ChannelClosedError,
    ClusterStateError,
    FeedTimeoutError,
    ResultCountError,
    TfosError,
)
from tfos_core.events import EventSink, FeedFinished, Warned
from tfos_core.feed.agreement import Agreements, GrantSteps
from tfos_core.feed.epoch import Epoch, FeedReport, skew_warnings
from tfos_core.feed.failures import from_wire
from tfos_core.feed.jobs import check_numbers, job_tag, local_property, spark_error
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.ledger import Conflict, Instruction, Ledger, apply_message, fed_twice, message_of, settle
from tfos_core.feed.replay import NodeCaches
from tfos_core.feed.source import feed_rdd, inference_rdd, outcomes
from tfos_core.feed.tasks import EPOCH_PROPERTY, Target
from tfos_core.feed.totals import NodeTotals

__all__ = ("FeedCoordinator", "FeedReport")

# How long a broken feed waits for the control channel to say what broke it.
_CAUSE_S = 3.0


class FeedCoordinator:
    """One per cluster.

    Args:
        nodes: the names of the nodes that take rows.
        send: hands a message to one node; must not wait. A gone node may raise ChannelClosedError.
        on_event: gets FeedProgress, FeedFinished and Warned, from any thread.
        generation: the cluster's; feed tasks refuse a node of another one.
        block_bytes: what blocks of rows aim at.
        on_error: called once with an error that nodes alone do not end with, from any thread; `train` may not be running.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        send: Callable[[str, dict[str, Any]], None],
        on_event: EventSink,
        *,
        generation: str = "",
        block_bytes: int = 1 << 20,
        on_error: Callable[[TfosError], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = tuple(nodes)
        self._send = send
        self._on_event = on_event
        self._generation = generation
        self._block_bytes = block_bytes
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._training = threading.Lock()
        self._aborted = threading.Event()
        self._error: TfosError | None = None
        self._on_error = on_error
        self._agreements = Agreements(nodes)
        self.totals = NodeTotals(nodes)
        self._closed: set[str] = set()
        self._ledger: Ledger | None = None
        self._caches: NodeCaches | None = None
        self._epoch = Epoch()
        self._spec: Mapping[str, Any] | None = None
        self._next_seq = 0
        self._calls = 0
        self._warned: set[str] = set()
        #: Epochs of the latest call that are over, those of earlier clusters included.
        self.epochs_fed = 0
        self._finished = False
        self._job: tuple[Any, str] | None = None
        #: Called when no node takes rows any more, from any thread; must not wait.
        self.on_all_closed: Callable[[], None] = lambda: None

    # --- the driver's thread

    def train(
        self,
        sc: Any,
        data: Any,
        *,
        num_epochs: int = 1,
        feed_timeout: float = 600,
        final: bool = False,
        first_epoch: int = 0,
        cache: NodeCache | None = None,
    ) -> FeedReport:
        """Feed an RDD or a DataFrame `num_epochs` times (0 means once); returns when every row was consumed.

        Args:
            first_epoch: feed the epochs from here on only, at least the last one.
            feed_timeout: seconds without any row consumed on a node after which the feed fails.
            final: no further call follows, so that the last epoch's end is the end of the feed.
            cache: nodes keep the first epoch that is fed, and replay it for the others.

        Raises:
            FeedError: also FeedTimeoutError; rows could not be delivered.
            TfosError: what `abort` was called with.
            ConfigError: the arguments can not work.
            ClusterStateError: the feed has ended, or another call is running.
        """
        check_numbers(num_epochs, feed_timeout)
        if not self._training.acquire(blocking=False):
            raise ClusterStateError(
                "train() is already running in another thread", "Wait for it, or unite the RDDs: sc.union([a, b])."
            )
        try:
            last = max(1, num_epochs) - 1
            epochs = range(min(first_epoch, last), last + 1)
            self._caches = None if cache is None else self._node_caches(cache, feed_timeout)
            return self._train(sc, data, epochs, feed_timeout, final)
        finally:
            self._training.release()

    def inference(self, sc: Any, rdd: Any, *, feed_timeout: float = 600, reporter: Any = None) -> Any:
        """The lazy RDD of one result per row of `rdd`, in its order; `reporter` is told of every partition that is done.

        Raises:
            ConfigError: not an RDD or DataFrame of a SparkContext.
        """
        check_numbers(1, feed_timeout)
        self._check_open()
        return inference_rdd(rdd, self._target(feed_timeout), reporter)

    def end_of_feed(self) -> None:
        """No further `train` or `inference` follows: nodes see the end of the feed after their last row. Idempotent."""
        with self._lock:
            if not self._finished:
                self._finished = True
                for node in self._nodes:
                    self._tell(node, {"op": "feed.end_of_feed"})

    @property
    def error(self) -> TfosError | None:
        """What stopped the feed: the first error of `abort`, or of a node's feed (a timeout, a wrong number of results)."""
        return self._error

    # --- other threads

    def abort(self, error: TfosError) -> None:
        """Stop feeding: running feed jobs are cancelled and `train` raises `error`. The first call counts."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._changed.notify_all()
        self._aborted.set()
        self._cancel_job()

    def node_ended(self, node: str) -> None:
        """The user's function returned on a node, which takes no more rows."""
        with self._lock:
            self._closed.add(node)
            self._grant(self._agreements.left(node))
            if self._ledger is not None:
                self._follow(self._ledger.node_closed(node))
            self._changed.notify_all()
        self._cancel_if_pointless()

    def handle(self, node: str, message: Mapping[str, Any]) -> None:
        """Handle one message of a node's FeedHub; unknown ones are ignored, for a newer node."""
        op = message.get("op")
        if op == "feed.failed":
            error = from_wire(message.get("error") or {})
            self.abort(error)
            if not self._training.locked():
                # Inference runs in jobs of the caller's: no call of ours is there to raise it, and the nodes would wait for ever.
                self._on_error(error)
            return
        self.totals.note(node, message)
        if op == "feed.steps":
            self._agree(node, message)
            return
        if op == "feed.closed" and not message.get("failed"):
            with self._lock:
                # What the node consumed since its last report would be missing from the numbers.
                if self._ledger is not None and message.get("seq") == self._ledger.seq:
                    self._ledger.node_rows(node, int(message.get("node_rows", 0)))
            self.node_ended(node)
            return
        with self._lock:
            ledger = self._ledger
            if op == "feed.spec" and self._spec is None:
                self._spec = message["spec"]
            if op == "feed.cached" and self._caches is not None:
                self._caches.note(node, message)
            self._changed.notify_all()
            if ledger is None or message.get("seq") != ledger.seq:
                return
            ledger.node_rows(node, int(message.get("node_rows", 0)))
            self._follow(apply_message(ledger, node, message))
            event = self._epoch.progress(ledger, self._clock())
        if event is not None:
            self._on_event(event)
        if self._error is not None:
            # The job may have been submitted between the abort and now.
            self._cancel_job()

    def _agree(self, node: str, message: Mapping[str, Any]) -> None:
        with self._lock:
            grants, problem = self._agreements.told(node, message)
            self._grant(grants)
        if message.get("out"):
            self._on_event(
                Warned(id="equal-steps-unused", message=f"equal_steps does not apply to {node}, which calls next_batch()")
            )
        if problem is not None:
            self.abort(problem)
            self._on_error(problem)

    def _grant(self, grants: Sequence[GrantSteps]) -> None:
        for grant in grants:
            for node in self._nodes:
                self._tell(node, grant.to_message())

    # --- one call

    def _train(self, sc: Any, data: Any, epochs: range, feed_timeout: float, final: bool) -> FeedReport:
        self._check_open()
        started = self._clock()
        tag = f"tfos-feed-{uuid.uuid4().hex[:12]}"
        call = self._calls
        self._calls += 1
        with job_tag(sc, tag), self._cancellable(sc, tag):
            rdd = self._prepared(data, feed_timeout)
            partitions = rdd.getNumPartitions()
            reports = []
            for epoch in epochs:
                self._epoch = Epoch(number=epoch, count=epochs.stop, last=final and epoch == epochs[-1])
                if self._caches is not None and self._caches.can_replay():
                    reports.append(self._replay_epoch(self._caches))
                else:
                    keep = None if self._caches is None else self._caches.kept_epoch(is_last=epoch == epochs[-1])
                    with local_property(sc, EPOCH_PROPERTY, json.dumps({"seq": self._next_seq, "call": call, "keep": keep})):
                        fed, report = self._feed_epoch(rdd, partitions)
                    reports.append(report)
                    if self._caches is not None and keep is not None and not self._all_closed():
                        self._caches.collect(fed)
                self.epochs_fed = epoch + 1
                if self._all_closed():
                    break
        if final:
            with self._lock:
                self._finished = True
        return FeedReport.of(reports, self._nodes, self._clock() - started)

    def _prepared(self, data: Any, feed_timeout: float) -> Any:
        try:
            return feed_rdd(data, self._target(feed_timeout))
        except TfosError:
            raise
        except Exception as exc:
            # Adaptive execution runs the query's shuffles here.
            self._raise_abort()
            raise spark_error(exc) from exc

    def _node_caches(self, cache: NodeCache, feed_timeout: float) -> NodeCaches:
        return NodeCaches(
            cache,
            nodes=self._nodes,
            tell=self._tell,
            changed=self._changed,
            check=self._raise_abort,
            closed=self._closed,
            emit=self._on_event,
            feed_timeout=feed_timeout,
            clock=self._clock,
        )

    def _replay_epoch(self, caches: NodeCaches) -> FeedFinished:
        self._epoch.cached = True
        with self._lock:
            self._raise_abort()
            again = self._epoch.number + 1 < self._epoch.count
            ledger = caches.start(self._next_seq, self._epoch.number, again=again)
            self._begin(ledger)
            caches.await_end(ledger)
            self._ledger = None
        return self._finished_epoch(ledger)

    def _begin(self, ledger: Ledger) -> None:
        self._next_seq += 1
        self._ledger = ledger
        self._epoch.started = self._epoch.reported = self._clock()

    def _feed_epoch(self, rdd: Any, partitions: int) -> tuple[Ledger, FeedFinished]:
        with self._lock:
            self._raise_abort()
            ledger = Ledger(seq=self._next_seq, partitions=partitions, nodes=self._nodes, closed=self._closed)
            ledger.spec = self._spec
            self._begin(ledger)
            if partitions == 0:
                self._follow(ledger.job_ended())
        try:
            found = outcomes(rdd)
        except Exception as exc:
            self._raise_abort()
            if not self._all_closed():
                self._await_cause(exc)
                raise spark_error(exc) from exc
            found = []
        failed = next((outcome for outcome in found if outcome.state == "failed"), None)
        if failed is not None:
            error = from_wire(failed.error or {})
            self._await_cause(error)
            self.abort(error)
        with self._lock:
            self._raise_abort()
            for outcome in found:
                self._follow(settle(ledger, outcome))
            self._follow(ledger.job_ended())
            self._ledger = None
        return ledger, self._finished_epoch(ledger)

    def _finished_epoch(self, ledger: Ledger) -> FeedFinished:
        finished = self._epoch.finished(ledger, self._clock())
        self._on_event(finished)
        for warning in skew_warnings(finished, self._closed):
            # Epochs resemble each other: once is enough.
            if warning.id not in self._warned:
                self._warned.add(warning.id)
                self._on_event(warning)
        return finished

    def _await_cause(self, error: BaseException) -> None:
        """Prefer what the control channel says about a node over what a feed task saw of it."""
        if not isinstance(error, FeedTimeoutError | ResultCountError):
            self._aborted.wait(_CAUSE_S)
        self._raise_abort()

    # --- inner

    def _target(self, feed_timeout: float) -> Target:
        return Target(generation=self._generation, feed_timeout=feed_timeout, block_bytes=self._block_bytes)

    def _check_open(self) -> None:
        with self._lock:
            self._raise_abort()
            if self._finished:
                raise ClusterStateError("the feed has ended: the last train() call was the final one, or shutdown() was called")

    def _raise_abort(self) -> None:
        if self._error is not None:
            raise self._error

    def _all_closed(self) -> bool:
        with self._lock:
            return self._closed >= set(self._nodes)

    def _cancel_if_pointless(self) -> None:
        if self._all_closed():
            self._cancel_job()
            self.on_all_closed()

    @contextlib.contextmanager
    def _cancellable(self, sc: Any, tag: str) -> Iterator[None]:
        with self._lock:
            self._job = (sc, tag)
        try:
            yield
        finally:
            with self._lock:
                self._job = None
                self._ledger = None

    def _cancel_job(self) -> None:
        with self._lock:
            job = self._job
        if job is not None:
            job[0].cancelJobsWithTag(job[1])

    def _follow(self, instructions: Sequence[Instruction]) -> None:
        seq = self._ledger.seq if self._ledger is not None else -1
        for instruction in instructions:
            if isinstance(instruction, Conflict):
                self.abort(fed_twice(instruction))
            else:
                self._tell(instruction.node, message_of(instruction, seq, final=self._epoch.last))

    def _tell(self, node: str, message: dict[str, Any]) -> None:
        # A node that is gone needs no END; its failure comes on its own.
        with contextlib.suppress(ChannelClosedError):
            self._send(node, message)
