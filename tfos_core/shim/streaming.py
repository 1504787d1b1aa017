"""The job of a spec with a `stream`: reads it, feeds it to a cluster until it ends, and lets others ask for the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfos_core.errors import ConfigError, TfosError
from tfos_core.jobplan import StreamPlan
from tfos_core.private_files import write_private
from tfos_core.shim import training, usercode
from tfos_core.shim.data import SCHEMA_OPTION
from tfos_core.shim.work import Work
from tfos_core.spark_errors import reason_of

__all__ = ("SECRET_FILE", "open_stream", "train")

#: In the folder of the run while the stream may be stopped: what `tfos stop-streaming` proves itself with, in hexadecimal digits.
SECRET_FILE = "secret"  # noqa: S105 - a name


def train(work: Work, stream: StreamPlan, function: Callable[..., Any], args: Any) -> None:
    """Start the cluster, feed it the stream until that ends, and shut it down.

    Raises:
        TfosError: whatever went wrong first.
    """
    plan, begun = work.plan, time.monotonic()
    data = open_stream(work.spark, stream, args)
    work.cancellation.check()
    work.progress.mark("load_s", begun)
    cluster = training.start_cluster(work, function, args)
    with _stoppable(Path(plan.run_folder), cluster):
        begun = time.monotonic()
        try:
            cluster.train(data, 1, plan.feed_timeout, interval=stream.interval, checkpoint=stream.checkpoint)
        except (Exception, KeyboardInterrupt) as exc:
            training.shut_down_after(cluster, exc)
            raise
        try:
            cluster.shutdown(grace_secs=plan.grace_secs, timeout=plan.shutdown_timeout)
        finally:
            work.progress.mark("stream_s", begun)
            work.progress.collect(cluster.report())


def open_stream(spark: Any, plan: StreamPlan, args: Any) -> Any:
    """The streaming DataFrame of a plan.

    Raises:
        ConfigError: it can not be read, or its rows have no schema yet.
        UserCodeError: `transform` raised.
    """
    place = plan.path if plan.source == "files" else f"{plan.host}:{plan.port}"
    try:
        data = _files(spark, plan) if plan.source == "files" else _socket(spark, plan)
        data = data.select(*plan.columns) if plan.columns else data
    except TfosError:
        raise
    except Exception as exc:
        raise ConfigError(
            f"the stream {place!r} can not be read as {plan.format}: {reason_of(exc)}",
            "Check stream.path, stream.format, stream.columns and stream.options in the spec.",
        ) from exc
    if plan.transform is None:
        return data
    shown = plan.transform.shown
    changed = usercode.call(f"transform {shown!r}", usercode.load_function(plan.transform), spark, data, args)
    if getattr(changed, "isStreaming", False) is not True:
        raise ConfigError(
            f"{shown!r} returned {type(changed).__name__}, which is no stream",
            "Return the streaming DataFrame that it was given, with other columns or fewer rows; end the function with 'return'.",
        )
    return changed


def _files(spark: Any, plan: StreamPlan) -> Any:
    options = {name: value for name, value in plan.options.items() if name != SCHEMA_OPTION}
    reader = spark.readStream.format(plan.format).options(**options)
    if plan.max_files is not None:
        reader = reader.option("maxFilesPerTrigger", plan.max_files)
    if plan.format != "text":
        reader = reader.schema(plan.options.get(SCHEMA_OPTION) or _schema_of_files(spark, plan, options))
    return reader.load(plan.path)


def _schema_of_files(spark: Any, plan: StreamPlan, options: dict[str, Any]) -> Any:
    try:
        return spark.read.format(plan.format).options(**options).load(plan.path).schema
    except Exception as exc:
        raise ConfigError(
            f"the rows of the stream {plan.path!r} have no schema: there are no files yet to take it from ({reason_of(exc)})",
            "Name it in the spec, as in stream.options.schema: 'x float, y float'.",
        ) from exc


def _socket(spark: Any, plan: StreamPlan) -> Any:
    return spark.readStream.format("socket").option("host", plan.host).option("port", plan.port).load()


@contextlib.contextmanager
def _stoppable(run_folder: Path, cluster: Any) -> Iterator[None]:
    """While open, the cluster's secret is in the record of the run."""
    path = run_folder / SECRET_FILE
    _, _, secret = cluster.control
    write_private(path, secret.hex() + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
