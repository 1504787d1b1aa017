"""The steps of one job on the driver, from the plan to the result. Spark and the engine come in as functions."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from tfos_core import events
from tfos_core.cancellation import Cancellation
from tfos_core.errors import ConfigError, InterruptedRunError, TfosError
from tfos_core.exit_codes import ExitCode
from tfos_core.jobplan import JobPlan
from tfos_core.options import ClusterOptions
from tfos_core.shim import answering, probing, streaming, training, usercode
from tfos_core.shim.application import application_of
from tfos_core.shim.errors import DriverLostError, SubmissionError
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.result import Progress
from tfos_core.shim.status import RunState
from tfos_core.shim.work import STOP_TIMEOUT_S, Engine, Work

__all__ = ("STOP_TIMEOUT_S", "Engine", "Job", "LineSender")

logger = logging.getLogger(__name__)

#: Longest wait for Spark to end its application; a master that is gone never answers.
_SPARK_STOP_TIMEOUT_S = 20.0
#: What remains to be said when the driver's JVM is gone is said at once.
_LOST_TIMEOUT_S = 10.0


class LineSender(Protocol):
    """Where event lines go beside the record."""

    def send(self, line: str) -> None:
        """Take one line; never waits and never raises."""


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
        self._progress = Progress()
        self._finished = False
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
            known = self._timer is not None or self._finished
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
        self._progress.note(event)
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
                f"Read the end of {self._log_place()}.",
            ) from exc
        with self._lock:
            self._spark = spark
        self._progress.mark("spark_s", begun)
        sc = spark.sparkContext
        application = application_of(sc, master=self._plan.remote.master if self._plan.remote is not None else None)
        self._record.update(state=RunState.RUNNING, application_id=application)
        self.emit(
            events.DriverStarted(
                application_id=application,
                host=socket.gethostname(),
                pid=os.getpid(),
                spark_version=str(sc.version),
                web_url=sc.uiWebUrl,
            )
        )
        self._cancellation.check()

    def _run_plan(self) -> None:
        plan = self._plan
        work = Work(plan=plan, engine=self._engine, spark=self._spark, options=self._options(), progress=self._progress)
        if plan.probe is not None:
            probing.run(work, plan.probe)
            return
        args = usercode.build_args(plan.args)
        if plan.infer is not None:
            answering.answer(work, plan.infer, args)
            return
        if plan.entrypoint is None:
            raise ConfigError("the plan names nothing to run", "Set entrypoint.")
        function = usercode.load_function(plan.entrypoint)
        if plan.mode == "parallel":
            training.run_instances(work, function, args)
        elif plan.stream is not None:
            streaming.train(work, plan.stream, function, args)
        else:
            training.train(work, function, args)

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
            equal_steps=plan.equal_steps,
            cache=plan.data.node_cache if plan.data is not None and plan.input_mode == "spark" else None,
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
            first, self._finished = not self._finished, True
        if not first:
            # the timer was faster and is about to end the process; what it found is the result
            self._reported.wait(_LOST_TIMEOUT_S)
            return ExitCode(self._record.status.exit_code or 0)
        result = self._progress.result(error, run_folder=self._plan.run_folder, started=self._record.status.started)
        self.emit(result)
        fields = asdict(result)
        self._record.update(state=RunState.FINISHED, ended=round(time.time(), 3), **fields)
        self._reported.set()
        return ExitCode(result.exit_code)

    def _start_timer(self, limit_s: float, error: TfosError) -> None:
        with self._lock:
            if self._timer is not None or self._finished:
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

    def _log_place(self) -> str:
        """Where Spark's side of the story is."""
        return f"{self._plan.run_folder}/driver.log" if self._plan.remote is None else "the log of the driver's container"

    def _lost_error(self) -> DriverLostError:
        return DriverLostError(
            "the Spark driver (its JVM) died while the job was running",
            f"Read the end of {self._log_place()}; when it ran out of memory, raise spark.driver_memory.",
        )


def _stop_quietly(spark: Any) -> None:
    try:
        spark.stop()
    except Exception:
        logger.warning("Spark did not end the application cleanly", exc_info=True)
