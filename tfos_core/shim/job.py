"""The steps of one job on the driver, from the plan to the result. Spark and the engine come in as functions."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tfos_core import events, parallel
from tfos_core.cancellation import Cancellation
from tfos_core.errors import InterruptedRunError, NodeError, TfosError
from tfos_core.exit_codes import ExitCode, exit_code_of
from tfos_core.jobplan import JobPlan
from tfos_core.options import ClusterOptions
from tfos_core.parallel import raise_first
from tfos_core.shim import usercode
from tfos_core.shim.errors import DriverLostError, SubmissionError, hint_of, sentence_of
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.scratch import keep_export
from tfos_core.shim.status import RunState
from tfos_core.topology import InputMode

__all__ = ("Engine", "Job", "LineSender")

logger = logging.getLogger(__name__)

#: Longest wait for Spark to end its application; a master that is gone never answers.
_SPARK_STOP_TIMEOUT_S = 20.0
#: What a job gets to shut its cluster down after it was told to stop, `grace_secs` not counted.
STOP_TIMEOUT_S = 30.0
#: What remains to be said when the driver's JVM is gone is said at once.
_LOST_TIMEOUT_S = 10.0


class LineSender(Protocol):
    """Where event lines go beside the record."""

    def send(self, line: str) -> None:
        """Take one line; never waits and never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a job needs of Spark and of the cluster engine; tests bring their own.

    Attributes:
        start_spark: gives a SparkSession for a plan.
        run_cluster: `tfos_core.cluster.run`.
        run_parallel: `tfos_core.parallel.run`.
        exit_process: `os._exit`, for an end that can not wait for any thread.
    """

    start_spark: Callable[[JobPlan], Any]
    run_cluster: Callable[..., Any]
    run_parallel: Callable[..., Any] = parallel.run
    exit_process: Callable[[int], Any] = os._exit


@dataclass(slots=True)
class _Progress:
    """What is known so far for the result; under the job's lock."""

    first_failure: events.NodeFailed | None = None
    rows_fed: int = 0
    rows_per_node: dict[str, int] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    instances: tuple[dict[str, Any], ...] = ()
    finished: bool = False


class Job:
    """One run of one plan. `run` is called once, in the main thread; `stop` and `driver_lost` from any other thread."""

    def __init__(
        self, plan: JobPlan, *, engine: Engine, record: RecordWriter, channel: LineSender | None, secrets: Mapping[str, str]
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._record = record
        self._channel = channel
        self._secrets = secrets
        self._cancellation = Cancellation()
        self._lock = threading.Lock()
        self._progress = _Progress()
        self._spark: Any = None
        self._lost = False
        self._stop_reason: str | None = None
        self._timer: threading.Timer | None = None
        self._reported = threading.Event()

    def run(self) -> ExitCode:
        """Do everything, report the result, and return the exit code of the run; raises nothing."""
        error: BaseException | None = None
        try:
            self._start_spark()
            self._run_plan()
        except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - every end of a job becomes a result
            error = exc
        self._stop_spark()
        code = self._finish(self._judge(error))
        if self._timer is not None:
            self._timer.cancel()
        return code

    def stop(self, reason: str) -> None:
        """Shut the cluster down and end the job; bounded, also when something hangs."""
        with self._lock:
            self._stop_reason = self._stop_reason or reason
            started = self._spark is not None
            known = self._timer is not None or self._progress.finished
        if known:
            return
        self._record.update(state=RunState.STOPPING)
        limit = STOP_TIMEOUT_S + self._plan.grace_secs if started else 0.0
        self._start_timer(limit, InterruptedRunError(f"the run was stopped: {reason}"))
        self._cancellation.request(reason)

    def driver_lost(self) -> None:
        """The JVM with the SparkContext died: nothing can be shut down through it any more."""
        self._lost = True
        self._start_timer(_LOST_TIMEOUT_S, self._lost_error())
        self._cancellation.request("the Spark driver died")

    def emit(self, event: events.Event) -> None:
        """Write an event to the record and send it to the follower."""
        if isinstance(event, events.NodeFailed):
            with self._lock:
                if event.first and self._progress.first_failure is None:
                    self._progress.first_failure = event
        elif isinstance(event, (events.FeedProgress, events.FeedFinished)):
            self._count(event)
        line = self._record.event(event)
        if self._channel is not None:
            self._channel.send(line)

    def output(self, node: str, lines: Sequence[str]) -> None:
        """Write lines that a node printed to its log and show them to the follower."""
        clean = self._record.output(node, lines)
        if self._channel is not None:
            self._channel.send(json.dumps({"op": "output", "node": node, "lines": clean}, separators=(",", ":")))

    # -- steps ------------------------------------------------------------------------------------------------------------

    def _start_spark(self) -> None:
        begun = time.monotonic()
        self._cancellation.check()
        try:
            spark = self._engine.start_spark(self._plan)
        except Exception as exc:
            master = self._record.status.master
            reason = str(exc).strip().partition("\n")[0]
            raise SubmissionError(
                f"Spark could not start the application on {master or 'its master'}: {reason}",
                f"Read the end of {self._plan.run_folder}/driver.log.",
            ) from exc
        with self._lock:
            self._spark = spark
            self._progress.timings["spark_s"] = round(time.monotonic() - begun, 3)
        sc = spark.sparkContext
        self._record.update(state=RunState.RUNNING, application_id=str(sc.applicationId))
        self.emit(
            events.DriverStarted(
                application_id=str(sc.applicationId),
                host=socket.gethostname(),
                pid=os.getpid(),
                spark_version=str(sc.version),
                web_url=sc.uiWebUrl,
            )
        )
        self._cancellation.check()

    def _run_plan(self) -> None:
        plan = self._plan
        function = usercode.load_function(plan.entrypoint)
        args = usercode.build_args(plan.args)
        if plan.mode == "parallel":
            self._run_instances(function, args)
        else:
            self._train(function, args)

    def _run_instances(self, function: Callable[..., Any], args: Any) -> None:
        plan, begun = self._plan, time.monotonic()
        options, sc = self._options(), self._spark.sparkContext
        results = self._engine.run_parallel(
            sc, function, args, plan.num_nodes, check=False, timeout=plan.shutdown_timeout, options=options
        )
        self._mark("instances_s", begun)
        with self._lock:
            self._progress.instances = tuple(result.to_dict() for result in results)
            self._progress.exports = tuple(path for result in results for path in result.exports)
        raise_first(results, plan.run_id)

    def _train(self, function: Callable[..., Any], args: Any) -> None:
        plan, begun = self._plan, time.monotonic()
        mode = InputMode(plan.input_mode)
        data = usercode.load_data(self._spark, plan.data, args) if mode is InputMode.SPARK and plan.data is not None else None
        self._cancellation.check()
        self._mark("load_s", begun)
        cluster = self._engine.run_cluster(
            self._spark.sparkContext,
            function,
            args,
            plan.num_nodes,
            plan.num_ps,
            tensorboard=plan.tensorboard.enabled,
            input_mode=mode,
            log_dir=plan.log_dir,
            driver_ps_nodes=plan.driver_ps_nodes,
            master_node=plan.master_node,
            reservation_timeout=plan.reservation_timeout,
            eval_node=plan.eval_node,
            release_port=plan.release_port,
            options=self._options(),
        )
        try:
            if data is not None:
                cluster.train(data, plan.num_epochs, plan.feed_timeout, final=True)
        except (Exception, KeyboardInterrupt) as exc:
            self._shut_down_after(cluster, exc)
            raise
        finally:
            self._collect(cluster)
        begun = time.monotonic()
        try:
            cluster.shutdown(grace_secs=plan.grace_secs, timeout=plan.shutdown_timeout)
        finally:
            self._mark("finish_s", begun)
            self._collect(cluster)

    def _shut_down_after(self, cluster: Any, error: BaseException) -> None:
        """End the nodes after a failed feed; what this finds matters only when the feed's own error explains nothing."""
        try:
            cluster.shutdown(grace_secs=0, timeout=STOP_TIMEOUT_S)
        except TfosError as found:
            if not isinstance(error, TfosError):
                raise found from error
        except Exception:
            logger.warning("the cluster did not shut down cleanly", exc_info=True)

    def _options(self) -> ClusterOptions:
        plan = self._plan
        return ClusterOptions(
            run_id=plan.run_id,
            on_event=self.emit,
            on_output=self.output,
            cancellation=self._cancellation,
            environment=plan.environment,
            secrets=self._secrets,
            keras=plan.keras,
            gpus=plan.gpus,
            gpu_source=plan.gpu_source,
            num_epochs=plan.num_epochs,
            base_dir=plan.base_dir,
            data=asdict(plan.data) if plan.data is not None else {},
            tensorboard=plan.tensorboard,
            on_file=self._record.event_file if plan.tensorboard.collect else None,
        )

    def _stop_spark(self) -> None:
        if self._spark is None or self._lost:
            return
        # In a thread of its own, because Spark gives no deadline for it and a master that went away never answers.
        stopping = threading.Thread(target=_stop_quietly, args=(self._spark,), name="tfos-spark-stop", daemon=True)
        stopping.start()
        stopping.join(_SPARK_STOP_TIMEOUT_S)
        if stopping.is_alive():
            logger.warning("Spark did not end the application within %s s", _SPARK_STOP_TIMEOUT_S)

    # -- result -----------------------------------------------------------------------------------------------------------

    def _judge(self, error: BaseException | None) -> BaseException | None:
        """What really ended the job: a dead driver and a request to stop make other errors appear."""
        if error is None:
            return None
        if self._stop_reason is not None:
            # also when the JVM died since: a stop that comes early ends it with a signal
            return InterruptedRunError(f"the run was stopped: {self._stop_reason}")
        if self._lost:
            return self._lost_error()
        return error

    def _finish(self, error: BaseException | None) -> ExitCode:
        with self._lock:
            first, self._progress.finished = not self._progress.finished, True
        if not first:
            # the timer was faster and is about to end the process; what it found is the result
            self._reported.wait(_LOST_TIMEOUT_S)
            return ExitCode(self._record.status.exit_code or 0)
        result = self._result(error)
        self.emit(result)
        fields = asdict(result)
        self._record.update(state=RunState.FINISHED, ended=round(time.time(), 3), **fields)
        self._reported.set()
        return ExitCode(result.exit_code)

    def _result(self, error: BaseException | None) -> events.Result:
        progress = self._progress
        code = ExitCode.SUCCESS if error is None else exit_code_of(error)
        status = {ExitCode.SUCCESS: "success", ExitCode.INTERRUPTED: "interrupted"}.get(code, "failed")
        failure = self._first_failure(error) if status == "failed" else None
        total = round(time.time() - self._record.status.started, 3)
        return events.Result(
            status=status,
            exit_code=code,
            error="" if error is None else sentence_of(error),
            hint=hint_of(error, code),
            first_failure=failure,
            timings=progress.timings | {"total_s": total},
            rows_fed=progress.rows_fed,
            rows_per_node=progress.rows_per_node,
            exports=self._kept_exports(),
            instances=progress.instances,
        )

    def _kept_exports(self) -> tuple[str, ...]:
        folder = Path(self._plan.run_folder)
        kept = []
        for path in self._progress.exports:
            try:
                kept.append(keep_export(folder, path))
            except OSError:
                logger.warning("%s could not be moved out of Spark's scratch", path, exc_info=True)
                kept.append(path)
        return tuple(kept)

    def _first_failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """The node that failed first, or the driver when the failure happened there."""
        if self._progress.first_failure is not None:
            return asdict(self._progress.first_failure)
        if error is None or (isinstance(error, TfosError) and not getattr(error, "remote_traceback", "")):
            return None
        text = getattr(error, "remote_traceback", "") or "".join(traceback.format_exception(error))
        node, host, executor_id = "driver", socket.gethostname(), -1
        if isinstance(error, NodeError):
            node, host, executor_id = error.node, error.host, error.executor_id
        return asdict(events.NodeFailed(node=node, host=host, executor_id=executor_id, error=sentence_of(error), traceback=text))

    def _start_timer(self, limit_s: float, error: TfosError) -> None:
        with self._lock:
            if self._timer is not None or self._progress.finished:
                return
            self._timer = threading.Timer(limit_s, self._expire, args=(error,))
            self._timer.daemon = True
        self._timer.start()

    def _expire(self, error: TfosError) -> None:
        """The job did not come to its end: say so, and go without waiting for anybody."""
        code = self._finish(error)
        close = getattr(self._channel, "close", None)
        if close is not None:
            close()
        self._engine.exit_process(code)

    def _collect(self, cluster: Any) -> None:
        report = cluster.report()
        with self._lock:
            self._progress.exports = tuple(report.exports)
            self._progress.timings.update({name: round(value, 3) for name, value in report.timings.items()})
            if report.rows_per_node:
                self._progress.rows_per_node = dict(report.rows_per_node)
                self._progress.rows_fed = sum(report.rows_per_node.values())

    def _count(self, event: events.FeedProgress | events.FeedFinished) -> None:
        """Rows of the running epoch; the cluster's report replaces them by the whole."""
        with self._lock:
            self._progress.rows_fed = max(self._progress.rows_fed, event.rows)
            self._progress.rows_per_node = dict(event.rows_per_node)

    def _mark(self, phase: str, begun: float) -> None:
        with self._lock:
            self._progress.timings[phase] = round(time.monotonic() - begun, 3)

    def _lost_error(self) -> DriverLostError:
        return DriverLostError(
            "the Spark driver (its JVM) died while the job was running",
            f"Read the end of {self._plan.run_folder}/driver.log; when it ran out of memory, raise spark.driver_memory.",
        )


def _stop_quietly(spark: Any) -> None:
    try:
        spark.stop()
    except Exception:
        logger.warning("Spark did not end the application cleanly", exc_info=True)
