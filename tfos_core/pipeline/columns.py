"""Columns of DataFrames on their way into a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfos_core.column_names import quoted
from tfos_core.errors import ConfigError

__all__ = ("check_columns", "is_vector", "vector_to_array")


def check_columns(df: Any, names: Iterable[str], parameter: str) -> None:
    """Refuse names that are no columns of `df`.

    Raises:
        ConfigError: names them, and those that are there.
    """
    if missing := [name for name in names if name not in df.columns]:
        there = ", ".join(df.columns) or "none"
        raise ConfigError(
            f"{parameter} names {', '.join(map(repr, missing))}, but the columns of the DataFrame are {there}",
            "Keys of input_mapping are columns, its values are tensors.",
        )


def is_vector(df: Any, name: str) -> bool:
    """Whether a column holds vectors of Spark ML, as VectorAssembler makes them."""
    return any(field.name == name and field.dataType.typeName() in ("vector", "vectorudt") for field in df.schema.fields)


def vector_to_array(df: Any, name: str, dtype: str) -> Any:
    """The column as an array of `float32` or `float64`: TensorFlow knows no vectors."""
    from pyspark.ml.functions import vector_to_array as convert
    from pyspark.sql.functions import col

    return convert(col(quoted(name)), dtype)
