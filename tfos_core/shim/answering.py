"""Jobs that answer rows (`tfos infer`): a saved model over a DataFrame, or the user's function on a cluster's nodes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from tfos_core.errors import ConfigError, TfosError
from tfos_core.events import InferFinished
from tfos_core.inference.model import write_answers
from tfos_core.inference.output import OutputFolder
from tfos_core.inference.program import PlainResults, results_dataframe
from tfos_core.inference.watch import TaskWatch
from tfos_core.inference.writing import job_error, write_counted
from tfos_core.jobplan import InferPlan
from tfos_core.saved_model.dataframe import prepare_inference
from tfos_core.saved_model.errors import OutputCountError
from tfos_core.saved_model.settings import InferenceSettings
from tfos_core.shim import usercode
from tfos_core.shim.training import shut_down_after, start_cluster
from tfos_core.shim.work import Work

__all__ = ("answer",)

logger = logging.getLogger(__name__)
#: Longest wait for tasks that were killed.
_TASKS_END_S = 10.0
_LOOK_EVERY_S = 0.05


def answer(work: Work, infer: InferPlan, args: Any) -> None:
    """Answer all rows of the plan's data and put the output in its place, when every row is accounted for.

    Raises:
        ConfigError: the output exists, or model, signature, columns and format do not go together.
        TfosError: whatever else went wrong first; then the output is as it was.
    """
    sc = work.spark.sparkContext
    work.cancellation.on_request(lambda _: _cancel_jobs(sc))
    output = _folder(work, infer, infer.output, "infer.output.path")
    bad_rows = None if infer.bad_rows is None else _folder(work, infer, infer.bad_rows, "infer.bad_rows")
    begun = time.monotonic()
    function = None
    if infer.export_dir is None:
        assert work.plan.entrypoint is not None  # noqa: S101 - checked before submission
        function = usercode.load_function(work.plan.entrypoint)
    if work.plan.data is None:
        raise ConfigError("there are no rows to answer: data is not set", "Set data.path or data.source.")
    data = usercode.load_data(work.spark, work.plan.data, args)
    work.cancellation.check()
    work.progress.mark("load_s", begun)
    try:
        if function is None:
            _with_model(work, infer, data, output, bad_rows)
        else:
            _with_program(work, infer, data, output, function, args)
    except BaseException:
        _await_tasks(sc)
        raise
    finally:
        for folder in (output, bad_rows):
            if folder is not None:
                folder.discard()


def _with_model(work: Work, infer: InferPlan, data: Any, output: OutputFolder, bad_rows: OutputFolder | None) -> None:
    begun = time.monotonic()
    with _Translated(work):
        prepared = prepare_inference(data, _settings(infer))
    work.progress.mark("model_s", begun)
    begun = time.monotonic()
    with _watch(work) as watch:
        with _Translated(work, watch):
            written, bad = write_answers(
                prepared, watch, output=output, format=infer.output_format, bad_rows=bad_rows, gpus=work.plan.gpus
            )
        work.progress.mark("infer_s", begun)
        _commit(work, infer, watch, written=written, bad=bad, folders=(bad_rows, output))


def _with_program(work: Work, infer: InferPlan, data: Any, output: OutputFolder, function: Callable[..., Any], args: Any) -> None:
    from pyspark import StorageLevel

    plan = work.plan
    cluster = start_cluster(work, function, args)
    begun = time.monotonic()
    with _watch(work) as watch:
        try:
            reporter = watch.reporter(work.spark.sparkContext)
            answers = cluster.inference(data, plan.feed_timeout, reporter=reporter)
            # Computed once: the nodes are gone when the results are written.
            results = answers.mapPartitions(PlainResults()).persist(StorageLevel.DISK_ONLY)
            count = results.count()
        except (Exception, KeyboardInterrupt) as exc:
            # What a node says explains more than what Spark saw of it.
            shut_down_after(cluster, exc)
            with _Translated(work, watch):
                raise
        finally:
            work.progress.collect(cluster.report())
        work.progress.mark("infer_s", begun)
        begun = time.monotonic()
        try:
            cluster.shutdown(grace_secs=plan.grace_secs, timeout=plan.shutdown_timeout)
        finally:
            work.progress.mark("finish_s", begun)
            work.progress.collect(cluster.report())
        with _Translated(work, watch):
            frame = results_dataframe(work.spark, results)
            written = write_counted(frame, str(output.staging), format=infer.output_format)
            results.unpersist()
        if count != watch.results:
            raise OutputCountError(f"{count} results were kept, and {watch.results} were given", "Run it again.")
        _commit(work, infer, watch, written=written, bad=0, folders=(None, output))


def _commit(
    work: Work, infer: InferPlan, watch: TaskWatch, *, written: int, bad: int, folders: tuple[OutputFolder | None, OutputFolder]
) -> None:
    """Every row that came in has to have come out."""
    rows = watch.rows
    counts = {
        "rows_in": rows,
        "rows_out": written,
        "rows_bad": bad,
        "partitions": watch.partitions,
        "output": infer.output,
        "bad_rows": infer.bad_rows,
    }
    work.progress.answered(counts)
    if rows != written + bad or watch.results != written or watch.bad != bad:
        raise OutputCountError(
            f"{rows} rows came in, {written} were written and {bad} rejected: some are missing or double",
            "The output was not put in its place. Data that changes while it is read can do that; run it again.",
        )
    work.cancellation.check()
    for folder in folders:
        if folder is not None:
            folder.commit()
    work.emit(
        InferFinished(
            partitions=watch.partitions,
            rows=rows,
            rows_out=written,
            rows_bad=bad,
            seconds=round(watch.seconds, 3),
            output=infer.output,
            bad_rows=infer.bad_rows,
        )
    )


def _settings(infer: InferPlan) -> InferenceSettings:
    assert infer.export_dir is not None  # noqa: S101 - for the type checker
    return InferenceSettings(
        export_dir=infer.export_dir,
        signature_def_key=infer.signature_def_key,
        tag_set=infer.tag_set,
        input_mapping=infer.input_mapping,
        output_mapping=infer.output_mapping,
        batch_size=infer.batch_size,
        keep=infer.keep,
        bad_rows=infer.bad_rows,
        binary_outputs=infer.binary_outputs,
    )


def _folder(work: Work, infer: InferPlan, path: str, key: str) -> OutputFolder:
    return OutputFolder.open(work.spark.sparkContext, path, mode=infer.output_mode, key=key, run_id=work.plan.run_id)


def _watch(work: Work) -> TaskWatch:
    sc = work.spark.sparkContext
    return TaskWatch(work.emit, lambda _: _cancel_jobs(sc), _PartitionsOf(sc))


def _cancel_jobs(sc: Any) -> None:
    """All jobs of the application are this one's. A driver that is gone has none."""
    try:
        sc.cancelAllJobs()
    except Exception:
        logger.warning("the jobs could not be cancelled", exc_info=True)


def _await_tasks(sc: Any) -> None:
    """Tasks of a failed job end a moment after it, and one that still writes would make the folder anew that is removed."""
    deadline = time.monotonic() + _TASKS_END_S
    try:
        tracker = sc._jsc.sc().statusTracker()
        while time.monotonic() < deadline and any(info.numRunningTasks() for info in tracker.getExecutorInfos()):
            time.sleep(_LOOK_EVERY_S)
    except Exception:
        logger.debug("the driver's JVM does not say whether tasks run", exc_info=True)


class _PartitionsOf:
    """How many tasks a stage has, as Spark's status tracker says."""

    def __init__(self, sc: Any) -> None:
        self._tracker = sc.statusTracker()

    def __call__(self, stage: int) -> int:
        try:
            info = self._tracker.getStageInfo(stage)
        except Exception:
            logger.debug("the driver's JVM does not say how many tasks there are", exc_info=True)
            return 0
        return 0 if info is None else int(info.numTasks)


class _Translated:
    """Turns Spark's errors into ours: a request to stop and what a task said come first, because they cancel the job."""

    def __init__(self, work: Work, watch: TaskWatch | None = None) -> None:
        self._work = work
        self._watch = watch

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._work.cancellation.check()
        if self._watch is not None and self._watch.error is not None:
            raise self._watch.error from error
        if error is None or isinstance(error, TfosError):
            return
        known = job_error(error)
        if known is not error:
            raise known from error
