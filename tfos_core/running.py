"""A started cluster: fed, watched, shut down. `cluster.run` makes it."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.driver_nodes import DriverNodes
from tfos_core.errors import (
    ChannelClosedError,
    ClusterStateError,
    ConfigError,
    FeedError,
    InterruptedRunError,
    ResultCountError,
    TfosError,
)
from tfos_core.gpu_request import resolve_request
from tfos_core.launch import NodeJob, await_registration, driver_host, job_error, new_cluster_config
from tfos_core.node_config import ClusterConfig
from tfos_core.node_errors import explained, failed_event, node_error
from tfos_core.node_news import NodeNews
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.options import ClusterOptions, NodeCache
from tfos_core.placement import check_context, place
from tfos_core.reservation import Server, conceal
from tfos_core.slot_watch import SlotWatch
from tfos_core.stuck import StuckNodes
from tfos_core.tensorboard.board import ClusterBoard
from tfos_core.tensorboard.options import board_node
from tfos_core.tidying import tidy_executors
from tfos_core.topology import ClusterPlan, InputMode
from tfos_core.watch import FailureWatch

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

    from tfos_core.feed.coordinator import FeedCoordinator, FeedReport
    from tfos_core.inference.report import Reporter

__all__ = ("TFCluster",)

logger = logging.getLogger(__name__)

#: Supervisors end within this after they were told, in seconds; STOP_GRACE_S is part of it.
_GONE_S = 10.0

_NOBODY_TRAINS = "every node serves (a ps, or one that sits in Server.join()), so nobody trained and the nodes were stopped"
_NOBODY_TRAINS_HINT = "Let the chief, or the workers, train and return; only the nodes that serve them call server.join()."


class TFCluster:
    """A started cluster; made by `run`."""

    def __init__(self, sc: SparkContext, plan: ClusterPlan, input_mode: InputMode, options: ClusterOptions) -> None:
        self._sc = sc
        self._plan = plan
        self._input_mode = input_mode
        self._options = options
        self._emit = options.on_event
        self._table = NodeTable(plan, input_mode)
        self._watch = FailureWatch(self._table, explained(sc, self._on_failure))
        self._server: Server | None = None
        self._job: NodeJob | None = None
        self._driver_nodes: DriverNodes | None = None
        self._slot_watch: SlotWatch | None = None
        self._feed: FeedCoordinator | None = None
        self._error: TfosError | None = None
        self._closed = False
        self._report = ClusterReport()
        node = board_node(plan) if options.tensorboard.enabled else ""
        self._board = ClusterBoard(options.tensorboard, node=node, sink=options.on_file, emit=self._emit)
        self._news = NodeNews(self._table, self._watch, options, self._report, self._board)
        self._stuck = StuckNodes(self._table, self._emit, options.run_id)
        self._news.on_stacks = self._stuck.answered
        # Feed tasks and nodes compare it, so that rows never reach a node that an earlier cluster left behind.
        self._generation = secrets.token_hex(8)

    # ---- start -------------------------------------------------------------------------------------------------------------

    def _start(self, payload: bytes, *, log_dir: str | None, timeout: float, release_port: bool) -> None:
        started = time.monotonic()
        for warning in check_context(self._sc, self._input_mode):
            self._emit(events.Warned(id="spark-setting", message=warning))
        self._options.cancellation.on_request(self._on_cancel)
        try:
            options, conf = self._options, dict(self._sc.getConf().getAll())
            gpus = resolve_request(options.gpus, options.gpu_source, master=str(self._sc.master), conf=conf)
            placement = place(
                self._sc,
                self._plan,
                self._input_mode,
                timeout=timeout,
                cancellation=options.cancellation,
                emit=self._emit,
                gpus=gpus.from_spark,
                patient=options.restart_count > 0,
            )
            self._report.timings["executors_s"] = time.monotonic() - started
            started = time.monotonic()
            server = self._open_server(timeout)
            config = new_cluster_config(
                self._sc,
                server,
                self._options,
                generation=self._generation,
                input_mode=self._input_mode,
                timeout=timeout,
                release_port=release_port,
                log_dir=log_dir,
                cores=placement.cores,
                tensorboard_node=self._board.node,
                gpus=gpus,
            )
            self._job = NodeJob(self._sc, self._plan, placement, config, payload, on_end=self._on_job_end)
            self._job.start()
            if self._plan.on_driver:
                self._start_driver_nodes(config, payload)
            await_registration(self._table, server, self._emit, timeout, is_over=lambda: self._error is not None)
            self._raise_error()
            self._start_nodes()
            if self._input_mode is InputMode.TENSORFLOW:
                # Fed nodes give their tasks back; these keep them, with all cores of their executors.
                self._slot_watch = SlotWatch(self._sc, self._emit)
                self._slot_watch.start()
        except BaseException as exc:
            self._close(f"the start failed: {exc}")
            raise
        self._report.timings["ready_s"] = time.monotonic() - started
        self._emit(
            events.ClusterReady(
                addresses={record.name: f"{record.host}:{record.port}" for record in server.reservations.get()},
                seconds=round(self._report.timings["ready_s"], 3),
            )
        )

    def _open_server(self, timeout: float) -> Server:
        names = [slot.name for slot in self._plan.slots]
        self._server = Server(
            names,
            on_message=self._news.on_message,
            on_registered=self._news.on_registered,
            on_disconnect=self._news.on_disconnect,
            on_stop=self._on_stop,
            host=driver_host(self._sc),
        )
        if self._input_mode is InputMode.SPARK:
            from tfos_core.feed.coordinator import FeedCoordinator

            self._feed = FeedCoordinator(
                [slot.name for slot in self._plan.fed],
                self._server.send,
                self._emit,
                generation=self._generation,
                on_error=lambda error: self._stuck.explain_later(error, self._fail),
            )
            self._news.feed = self._feed
        self._board.open(self._server.send)
        self._stuck.send = self._server.send
        host, port = self._server.start()
        self._emit(events.ReservationServerStarted(host=host, port=port, expected=tuple(names), timeout_s=timeout))
        return self._server

    def _start_driver_nodes(self, config: ClusterConfig, payload: bytes) -> None:
        folder = Path(self._sc._temp_dir)  # Spark removes it when the application ends
        self._driver_nodes = DriverNodes(self._plan.on_driver, config, payload, folder, on_failure=self._watch.job_failed)
        self._driver_nodes.start()

    def _start_nodes(self) -> None:
        assert self._server is not None  # noqa: S101 - for the type checker
        records = [record.to_dict() for record in self._server.reservations.get()]
        for slot in self._plan.slots:
            if self._options.secrets:
                self._server.send(slot.name, {"op": "node.secrets"} | conceal(self._server.secret, self._options.secrets))
            self._server.send(slot.name, {"op": "node.start", "nodes": records})

    # ---- public ------------------------------------------------------------------------------------------------------------

    def train(
        self,
        dataRDD: RDD[Any] | DataFrame,
        num_epochs: int = 0,
        feed_timeout: float = 600,
        qname: str = "input",
        *,
        final: bool = False,
        first_epoch: int = 0,
        cache: NodeCache | None = None,
    ) -> FeedReport:
        """Feed all rows to the nodes, `num_epochs` times; returns when they were consumed.

        Args:
            dataRDD: an RDD or a DataFrame.
            num_epochs: 0 means 1 (the 2022 API silently fed 10 epochs).
            feed_timeout: seconds without any row consumed on a node before feeding fails.
            qname: `input`.
            final: no further `train` follows, so that a node that can get no more rows is told so at once; otherwise nodes that
                loop over `next_batch` learn of the end in `shutdown`.
            first_epoch: the epoch to begin with, from 0; those before it were fed by an earlier cluster.
            cache: nodes keep the first of these epochs and replay it for the others; by default what the cluster's options say.

        Raises:
            ClusterStateError: not in `InputMode.SPARK`, or after `shutdown`.
            FeedTimeoutError, FeedError: rows could not be delivered.
            NodeFailedError, NodeLostError: a node failed.
        """
        feed = self._require_feed("train", qname)
        self._raise_error()
        try:
            report = feed.train(
                self._sc,
                dataRDD,
                num_epochs=num_epochs or 1,
                feed_timeout=feed_timeout,
                final=final,
                first_epoch=first_epoch,
                cache=cache or self._options.cache,
            )
        except (ConfigError, ClusterStateError):
            # A call that can not be served says nothing about the cluster, which may be feeding in another thread.
            self._raise_error()
            raise
        except TfosError as exc:
            self._feed_failed(exc)
            raise
        self._report.add_feed(report)
        return report

    def inference(
        self, dataRDD: RDD[Any], feed_timeout: float = 600, qname: str = "input", *, reporter: Reporter | None = None
    ) -> RDD[Any]:
        """A lazy RDD of one result per row, in order; run an action on it before `shutdown`. `reporter` is told what is done.

        Raises:
            ClusterStateError: not in `InputMode.SPARK`, or after `shutdown`.
        """
        feed = self._require_feed("inference", qname)
        self._raise_error()
        return feed.inference(self._sc, dataRDD, feed_timeout=feed_timeout, reporter=reporter)

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """End the feed, wait for the nodes' functions to return, stop the serving nodes; may be called from any thread.

        Args:
            ssc: of the class that takes streams.
            grace_secs: an evaluator may go on for so long after the others have ended.
            timeout: seconds until the nodes must have ended.

        Raises:
            NodeFailedError, NodeLostError: the first failure of the cluster, also of nodes that failed after the feed had ended.
            NodeTimeoutError: a node did not end in time.
        """
        if self._closed:
            self._raise_error()
            return
        if self._feed is not None and self._error is None:
            self._feed.end_of_feed()
        try:
            if not self._table.wait(lambda: not self._table.unfinished() or self._error is not None, timeout):
                self._set_error(self._stuck.not_ended(self._table.unfinished(), f"{timeout:g} s of shutdown"))
            elif self._error is None and self._table.first_failure() is not None:
                # The last node to end failed; the watch hears of it a moment after the table.
                self._watch.settle()
            elif self._error is None and grace_secs > 0:
                self._table.wait(lambda: not self._table.evaluating() or self._error is not None, grace_secs)
            if self._feed is not None and self._error is None:
                for warning in self._feed.totals.warnings(self._report.rows):
                    self._emit(warning)
            if self._error is None and not self._table.has_trained():
                self._emit(events.Warned(id="nobody-trains", message=_NOBODY_TRAINS, hint=_NOBODY_TRAINS_HINT))
            if self._error is None:
                self._board.await_files(self._table.ended_well(), is_over=lambda: self._error is not None)
                self._board.keep(self._stop_others)
        finally:
            self._close("the job is done")
        self._raise_error()

    def tensorboard_url(self) -> str | None:
        """Where TensorBoard answers, or soon will (the event `tensorboard` tells); None when none was asked for or none runs."""
        return self._board.url

    def report(self) -> ClusterReport:
        """Rows, exports and timings so far."""
        failure = self._table.first_failure()
        if self._feed is not None:
            self._report.steps_per_node = self._feed.totals.steps
            self._report.left_over = self._feed.totals.left_over
        return self._report.copy(first_failure=None if failure is None else failed_event(failure, first=True))

    # ---- failures ----------------------------------------------------------------------------------------------------------

    def _on_job_end(self, error: str | TfosError | None) -> None:
        """The Spark job of the node tasks ended; a failure counts when no node told a better one."""
        if error is not None and not self._closed:
            self._watch.job_failed(job_error(error))

    def _on_cancel(self, reason: str) -> None:
        # When only TensorBoard was kept, the job itself is done: that is no failure.
        if not self._board.let_go():
            self._fail(InterruptedRunError(f"the run was stopped: {reason}"))

    def _on_failure(self, cause: NodeFailure | TfosError) -> None:
        """Called once, by the watch, with what explains the failure of the cluster."""
        if isinstance(cause, TfosError):
            self._fail(cause)
            return
        if not self._closed and self._error is None:
            self._emit(failed_event(cause, first=True))
        told = self._feed.error if self._feed is not None else None
        # A wrong number of results also ends the node's function with that error: then the feed's own word is the cause.
        self._fail(told if isinstance(told, ResultCountError) else node_error(cause, self._options.run_id))

    def _feed_failed(self, exc: TfosError) -> None:
        """A feed error may be the echo of a node's failure that is still on its way; then that one counts."""
        if isinstance(exc, FeedError):
            self._watch.settle()
        if self._error is None:
            self._fail(self._stuck.explain(exc))
        self._close(str(exc))
        if self._error is not None and self._error is not exc:
            raise self._error from exc

    def _fail(self, error: TfosError) -> None:
        if self._set_error(error):
            if self._feed is not None:
                self._feed.abort(error)
            self._stop_nodes(str(error))

    def _set_error(self, error: TfosError) -> bool:
        if self._error is not None or self._closed:
            return False
        self._error = error
        self._table.wake()
        self._board.let_go()
        return True

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _on_stop(self) -> None:
        """Somebody with the right to it asked the cluster to stop; only streams listen."""

    # ---- end ---------------------------------------------------------------------------------------------------------------

    def _stop_nodes(self, reason: str) -> None:
        if self._server is not None:
            self._server.broadcast({"op": "node.stop", "reason": reason})

    def _stop_others(self, kept: str) -> None:
        """End the nodes that still serve, all but one."""
        assert self._server is not None  # noqa: S101 - for the type checker
        for name in set(self._table.connected()) - {kept}:
            with contextlib.suppress(ChannelClosedError):
                self._server.send(name, {"op": "node.stop", "reason": "the job is done"})

    def _close(self, reason: str) -> None:
        """Stop every node, wait until they are gone, close the server; idempotent."""
        if self._closed:
            return
        self._closed = True
        since = time.monotonic()
        self._emit(events.ShutdownStarted(reason=str(self._error) if self._error else reason))
        if self._slot_watch is not None:
            self._slot_watch.stop()
        self._watch.close()
        self._table.expect_goodbyes()
        self._stop_nodes(reason)
        if not self._table.wait(lambda: not self._table.connected(), _GONE_S):
            logger.warning("nodes %s did not go away within %g s", ", ".join(self._table.connected()), _GONE_S)
        self._board.close()
        for tasks in (self._job, self._driver_nodes):
            if tasks is not None:
                tasks.stop(_GONE_S)
        if self._table.has_vanished():
            tidy_executors(self._sc, len(self._plan.on_executors))
        if self._server is not None:
            self._server.stop()
        self._options.cancellation.forget(self._on_cancel)
        self._report.timings["shutdown_s"] = time.monotonic() - since
        self._emit(events.ShutdownFinished(seconds=round(self._report.timings["shutdown_s"], 3)))

    def _require_feed(self, what: str, qname: str) -> FeedCoordinator:
        if self._feed is None:
            raise ClusterStateError(
                f"{what}() feeds rows, but this cluster was started with InputMode.TENSORFLOW", "Start it with InputMode.SPARK."
            )
        if qname != "input":
            raise ConfigError(f"qname is {qname!r}, but rows go in at 'input' only")
        if self._closed:
            self._raise_error()
            raise ClusterStateError(f"{what}() came after shutdown()", "Start a new cluster with TFCluster.run.")
        return self._feed
