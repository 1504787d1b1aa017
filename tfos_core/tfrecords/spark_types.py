"""Spark's type names, as in `df.dtypes`, to Arrow types; without pyspark."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tfos_core.errors import ConfigError

__all__ = ("arrow_type",)

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type(name: str) -> Any:
    """The Arrow type of a type name.

    Raises:
        ConfigError: a TFRecord holds no such type.
    """
    if name.startswith("array<") and name.endswith(">"):
        return pa.list_(arrow_type(name[len("array<") : -1]))
    simple = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if name in simple:
        return simple[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise ConfigError(
        f"a TFRecord can not hold the type {name}", "Cast the column to a number, string, binary, or an array of these."
    )
