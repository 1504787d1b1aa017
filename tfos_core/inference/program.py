"""Rows through the user's function on a cluster's nodes: what it gives becomes rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfos_core.errors import ConfigError

__all__ = ("RESULT_COLUMN", "PlainResults", "results_dataframe")

#: The only column of results that are no mappings.
RESULT_COLUMN = "result"


class PlainResults:
    """For `mapPartitions`: results as dicts of values that Spark knows. Mappings and Rows have columns, all else has one."""

    def __call__(self, results: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Convert one partition."""
        return map(_columns, results)


def results_dataframe(spark: Any, results: Any) -> Any:
    """The DataFrame of an RDD that `PlainResults` made; types are found in all rows.

    Raises:
        ConfigError: rows do not fit together.
    """
    if results.isEmpty():
        return spark.createDataFrame([], f"{RESULT_COLUMN} string")
    try:
        return spark.createDataFrame(results, samplingRatio=1.0)
    except Exception as exc:
        if type(exc).__module__.startswith("pyspark.errors"):
            raise ConfigError(
                f"the results of the entrypoint do not make columns: {str(exc).partition(chr(10))[0]}",
                "Return for every row a dict with the same keys and types, or one value.",
            ) from exc
        raise


def _columns(result: Any) -> dict[str, Any]:
    if hasattr(result, "asDict"):
        result = result.asDict()
    if isinstance(result, Mapping):
        return {str(name): _plain(value) for name, value in result.items()}
    return {RESULT_COLUMN: _plain(result)}


def _plain(value: Any) -> Any:
    """NumPy's and TensorFlow's values as Python's."""
    if callable(numpy := getattr(value, "numpy", None)):
        value = numpy()
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    if isinstance(value, bytes):
        return bytearray(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
