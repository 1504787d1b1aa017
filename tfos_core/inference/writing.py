"""Writing a DataFrame in the format that the spec asks for, counted by Spark on the way."""

from __future__ import annotations

import threading
from typing import Any

from tfos_core.errors import ConfigError, FeedError, NodeLostError, TfosError
from tfos_core.shim.errors import UserCodeError
from tfos_core.spark_errors import python_error, reason_of
from tfos_core.tfrecords.dataframe import save_as_tfrecords

__all__ = ("job_error", "write_counted")

#: Spark posts what it counted right after the job; only a listener bus that has died does not.
_COUNT_TIMEOUT_S = 60.0
_LOST = (
    "ExecutorLostFailure",
    "Lost executor",
    "SparkContext was shut down",
    "exited unexpectedly",
    "MetadataFetchFailed",
    "Lost task",
)


def write_counted(df: Any, path: str, *, format: str) -> int:  # noqa: A002 - Spark's word
    """Write to a folder that does not exist; the number of rows that came to the writer, as Spark counted them in the JVM.

    Raises:
        ConfigError: the format can not hold these columns.
        TfosError: what `job_error` makes of Spark's error.
    """
    if format == "tfrecord":
        return save_as_tfrecords(df, path)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    observation = Observation()
    counted = df.observe(observation, F.count(F.lit(1)).alias("rows"))
    try:
        counted.write.format(format).mode("error").options(**_OPTIONS.get(format, {})).save(path)
    except Exception as exc:
        if type(exc).__name__ == "AnalysisException":
            reason = str(exc).partition("\n")[0].partition(" SQLSTATE:")[0]
            raise ConfigError(
                f"the result can not be written as {format}: {reason}", "Use infer.output.format: parquet, which holds every type."
            ) from exc
        raise
    return _await_count(observation)


#: Without a header nobody knows which column is which.
_OPTIONS = {"csv": {"header": "true"}}


def _await_count(observation: Any) -> int:
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(int(observation.get.get("rows", 0))), name="tfos-count", daemon=True)
    waiting.start()
    waiting.join(_COUNT_TIMEOUT_S)
    if not found:
        raise FeedError("Spark did not say how many rows it wrote", "Run it again; nothing was put in the output's place.")
    return found[0]


def job_error(exc: BaseException) -> BaseException:
    """The error of tfos for an exception of a Spark job; itself when it is one already, or is not Spark's."""
    if isinstance(exc, TfosError) or not isinstance(exc, Exception):
        return exc
    reason = reason_of(exc)
    known = python_error(reason)
    if known is not None:
        return known
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - py4j asks the JVM for the text, and that may be gone
        return NodeLostError(f"Spark ended while rows were answered: {reason}", "Look at the driver's log.")
    if any(sign in text for sign in _LOST) and "PythonException" not in text:
        return NodeLostError(
            f"executors were lost while rows were answered: {reason}",
            "When they ran out of memory, raise spark.executor_memory_overhead: TensorFlow lives outside the JVM heap.",
        )
    if "PythonException" in text or type(exc).__name__ == "PythonException":
        return UserCodeError(f"Python code on an executor raised {reason}", None, text)
    if type(exc).__module__.startswith(("py4j.", "pyspark.")):
        return FeedError(f"Spark could not compute or write the rows: {reason}", "The driver's log has the whole trace.")
    return exc
