"""Independent instances of one function on Spark's executors, without a TensorFlow cluster between them: `TFParallel` of 2022.

    from tfos_core import TFParallel

    results = TFParallel.run(sc, predict, args, num_executors=4)

Every instance is a supervised process of its own, as a node of a cluster is, but there is no TF_CONFIG, and one that fails does not
stop the others.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import ConfigError, InterruptedRunError, NodeLostError, ReservationTimeoutError, TfosError
from tfos_core.gpu_request import GpuRequest, GpuSource, asked_gpus, resolve_request
from tfos_core.launch import NodeJob, await_registration, driver_host, make_payload, new_cluster_config
from tfos_core.node_errors import failed_event, node_error
from tfos_core.node_news import NodeNews
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.options import ClusterOptions
from tfos_core.placement import check_context, place
from tfos_core.reservation import NodeRecord, Server, conceal
from tfos_core.stuck import StuckNodes
from tfos_core.tensorboard.board import ClusterBoard
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("InstanceResult", "raise_first", "run")

#: Supervisors end within this after they were told, in seconds.
_GONE_S = 10.0
#: How long after Spark's job the last words of an instance may arrive, in seconds.
_LAST_WORDS_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResult:
    """How one instance ended.

    `value` is what its function returned where that is JSON (numbers, strings, lists, dictionaries), else None; `gpus` are what
    CUDA_VISIBLE_DEVICES named; `failed_at` orders failures; `exports` are the paths that it exported models to.
    """

    index: int
    host: str
    gpus: tuple[str, ...]
    ok: bool
    value: Any = None
    exports: tuple[str, ...] = ()
    failure: NodeFailure | None = None
    failed_at: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON: how it ended, without the times."""
        return {
            "index": self.index,
            "host": self.host,
            "gpus": list(self.gpus),
            "ok": self.ok,
            "value": self.value,
            "exports": list(self.exports),
            "error": self.failure.outcome.error if self.failure else "",
            "exit_code": self.failure.outcome.exit_code if self.failure else 0,
        }


def run(
    sc: SparkContext,
    map_fn: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    use_barrier: bool = True,
    *,
    check: bool = True,
    timeout: float = 259200,
    log_dir: str | None = None,
    options: ClusterOptions | None = None,
) -> tuple[InstanceResult, ...]:
    """Run `map_fn(tf_args, ctx)` `num_executors` times, each in a process of its own, and wait for all of them.

    Args:
        num_executors: instances; `ctx.task_index` counts them from 0, `ctx.num_workers` is their number.
        use_barrier: start all at once, and refuse when there are fewer executors; otherwise they take turns on those there are.
        check: raise when an instance failed; with False its failure is in its result.
        timeout: seconds until all instances must have ended.
        log_dir: as for a cluster: `ctx.log_dir` is the instance's own folder below it.
        options: as for a cluster; `num_epochs`, what belongs to feeding, and TensorBoard itself are not used; event files are
            collected all the same (`on_file`).

    Returns:
        One result per instance, by index.

    Raises:
        ConfigError: arguments or Spark settings that can not work, or a function that can not be pickled.
        ReservationTimeoutError: too few executors, or instances that did not begin in time.
        NodeTimeoutError: an instance did not end in time; the message says where it is.
        NodeFailedError, NodeLostError: an instance failed; the message says how many did and tells of the first.
        InterruptedRunError: cancelled through `options.cancellation`.
    """
    options = options or ClusterOptions()
    instances = _Instances(sc, num_executors, options, use_barrier=use_barrier)
    results = instances.run(make_payload(map_fn, tf_args), tf_args, timeout, log_dir)
    if check:
        raise_first(results, options.run_id)
    return results


def raise_first(results: Sequence[InstanceResult], run_id: str = "") -> None:
    """Raise the failure that came first, if any instance failed.

    Raises:
        NodeFailedError, NodeLostError: the message says how many failed and tells of the first.
    """
    failed = [result for result in results if result.failure is not None]
    if not failed:
        return
    first = min(failed, key=lambda result: result.failed_at)
    assert first.failure is not None  # noqa: S101 - for the type checker
    error = node_error(first.failure, run_id)
    error.message = f"{len(failed)} of {len(results)} instances failed; the first: {error.message}"
    error.args = (error.message, *error.args[1:])
    raise error


class _Instances:
    """One call of `run`; listens to the instances as a cluster does to its nodes."""

    def __init__(self, sc: SparkContext, count: int, options: ClusterOptions, *, use_barrier: bool) -> None:
        self.options = options
        self._sc = sc
        self._plan = ClusterPlan.build(count)
        self._use_barrier = use_barrier
        self._table = NodeTable(self._plan, InputMode.TENSORFLOW)
        self._report = ClusterReport()
        # No TensorBoard, but event files: instances have no leading node, and their records outlive them.
        self._board = ClusterBoard(options.tensorboard, node="", sink=options.on_file, emit=options.on_event)
        self._news = NodeNews(self._table, self, options, self._report, self._board)
        self._stuck = StuckNodes(self._table, options.on_event, options.run_id)
        self._news.on_stacks = self._stuck.answered
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[float, NodeFailure]] = {}
        self._hosts: dict[str, str] = {}
        self._error: TfosError | None = None
        self._job_ended: float | None = None
        self._server: Server | None = None

    def run(self, payload: bytes, tf_args: Any, timeout: float, log_dir: str | None) -> tuple[InstanceResult, ...]:
        """Start everything, wait, and leave nothing behind."""
        sc, options = self._sc, self.options
        for warning in check_context(sc, InputMode.TENSORFLOW):
            options.on_event(events.Warned(id="spark-setting", message=warning))
        gpus = self._gpus(tf_args)
        started = time.monotonic()
        needed = self._plan if self._use_barrier else ClusterPlan.build(1)
        cancellation = options.cancellation
        placement = place(
            sc,
            needed,
            InputMode.TENSORFLOW,
            timeout=timeout,
            cancellation=cancellation,
            emit=options.on_event,
            gpus=gpus.from_spark,
        )
        names = [slot.name for slot in self._plan.slots]
        self._server = Server(
            names,
            on_message=self._news.on_message,
            on_registered=self._on_registered,
            on_disconnect=self._news.on_disconnect,
            host=driver_host(sc),
        )
        self._board.open(self._server.send)
        self._stuck.send = self._server.send
        host, port = self._server.start()
        options.on_event(events.ReservationServerStarted(host=host, port=port, expected=tuple(names), timeout_s=timeout))
        config = new_cluster_config(
            sc,
            self._server,
            options,
            generation=secrets.token_hex(8),
            input_mode=InputMode.TENSORFLOW,
            timeout=timeout,
            release_port=True,
            log_dir=log_dir,
            cores=placement.cores,
            tensorboard_node="",
            gpus=gpus,
        )
        config = replace(config, independent=True)
        job = NodeJob(sc, self._plan, placement, config, payload, on_end=self._on_job_end, barrier=self._use_barrier)
        with cancellation.heard_by(self._on_cancel):
            try:
                job.start()
                if self._use_barrier:
                    await_registration(self._table, self._server, options.on_event, timeout, is_over=self._is_over)
                self._await_end(started + timeout, f"{timeout:g} s")
                self._board.await_files(names, is_over=lambda: self._error is not None)
            finally:
                self._close(job)
        if self._error is not None:
            raise self._error
        return tuple(self._result(name, index) for index, name in enumerate(names))

    # ---- news, in the server's thread ----------------------------------------------------------------------------------------

    def noticed(self, failure: NodeFailure) -> None:
        """An instance failed; the others go on."""
        with self._lock:
            first = not self._failures
            self._failures[failure.node] = (time.monotonic(), failure)
        self.options.on_event(failed_event(failure, first=first))

    def _on_registered(self, record: NodeRecord) -> None:
        self._hosts[record.name] = record.host
        self._news.on_registered(record)
        # Nobody waits for the others here, so every instance starts when it is there.
        if self._server is not None:
            if self.options.secrets:
                self._server.send(record.name, {"op": "node.secrets"} | conceal(self._server.secret, self.options.secrets))
            self._server.send(record.name, {"op": "node.start", "nodes": [record.to_dict()]})

    def _on_job_end(self, error: str | TfosError | None) -> None:
        if isinstance(error, TfosError):
            self._fail(error)
        elif error is not None:
            self._fail(NodeLostError(f"Spark could not run the instances: {error}", "Look at the driver's log."))
        self._job_ended = time.monotonic()
        self._table.wake()

    def _on_cancel(self, reason: str) -> None:
        self._fail(InterruptedRunError(f"the run was stopped: {reason}"))

    # ---- inner -------------------------------------------------------------------------------------------------------------

    def _gpus(self, tf_args: Any) -> GpuRequest:
        options = self.options
        conf = dict(self._sc.getConf().getAll())
        asked = asked_gpus(options.gpus, tf_args)
        request = resolve_request(asked, options.gpu_source, master=str(self._sc.master), conf=conf)
        if self._use_barrier or request.source is not GpuSource.NVIDIA_SMI:
            return request
        if asked is None:
            return GpuRequest()
        raise ConfigError(
            f"{asked} GPUs per instance are to come from nvidia-smi, but without a barrier nobody decides who takes which",
            "Use use_barrier=True, or let Spark hand out the GPUs (spark.executor.resource.gpu.amount).",
        )

    def _is_over(self) -> bool:
        return self._error is not None or self._job_ended is not None

    def _await_end(self, until: float, within: str) -> None:
        """All instances have ended, or Spark's job has and there is nobody left who could still say something."""
        self._table.wait(lambda: not self._table.unfinished() or self._is_over(), max(0.0, until - time.monotonic()))
        if self._job_ended is not None and self._error is None:
            self._table.wait(lambda: not self._table.unfinished(), _LAST_WORDS_S)
        unfinished, missing = self._table.unfinished(), self._table.missing()
        if unfinished and self._error is None:
            running = [name for name in unfinished if name not in missing]
            text = f"{', '.join(missing)} did not begin within {within}"
            self._fail(self._stuck.not_ended(running, within) if running else ReservationTimeoutError(text, None, missing))

    def _fail(self, error: TfosError) -> None:
        with self._lock:
            self._error = self._error or error
        self._table.wake()
        self._board.let_go()

    def _close(self, job: NodeJob) -> None:
        begun = time.monotonic()
        self._table.expect_goodbyes()
        if self._server is not None:
            self._server.broadcast({"op": "node.stop", "reason": str(self._error or "all instances have ended")})
        self._table.wait(lambda: not self._table.connected(), _GONE_S)
        self._board.close()
        job.stop(_GONE_S)
        if self._server is not None:
            self._server.stop()
        self.options.on_event(events.ShutdownFinished(seconds=round(time.monotonic() - begun, 3)))

    def _result(self, name: str, index: int) -> InstanceResult:
        failed_at, failure = self._failures.get(name, (0.0, None))
        gpus: Mapping[str, tuple[str, ...]] = self._report.gpus
        return InstanceResult(
            index=index,
            host=self._hosts.get(name, ""),
            gpus=tuple(gpus.get(name, ())),
            ok=failure is None,
            value=self._report.values.get(name),
            exports=tuple(self._report.exports_by_node.get(name, ())),
            failure=failure,
            failed_at=failed_at,
        )
