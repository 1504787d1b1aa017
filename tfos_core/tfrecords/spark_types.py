"""Spark's type names, as in `df.dtypes`, to Arrow types; without pyspark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tfos_core.errors import ConfigError

__all__ = ("arrow_schema_of_ddl", "arrow_schema_of_json", "arrow_type")

#: Where names in JSON schemas are not those of SQL; the other way round in SQL there are some more.
_OTHER_NAMES = {"integer": "int", "short": "smallint", "byte": "tinyint", "real": "float"}
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s+(.+?)(\s+not\s+null)?\s*", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type(name: str) -> Any:
    """The Arrow type of a type name.

    Raises:
        ConfigError: a TFRecord holds no such type.
    """
    name = _OTHER_NAMES.get(name, name)
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


def arrow_schema_of_json(schema: Mapping[str, Any]) -> Any:
    """The Arrow schema of a schema that Spark wrote as JSON.

    Raises:
        ConfigError: a TFRecord holds no such type.
    """
    return pa.schema([pa.field(field["name"], arrow_type(_simple(field["type"]))) for field in schema["fields"]])


def arrow_schema_of_ddl(text: str) -> Any:
    """The Arrow schema of columns in Spark's words, such as `id bigint, image array<float>`.

    Raises:
        ConfigError: it can not be read, or a TFRecord holds no such type.
    """
    fields = []
    for column in _columns(text):
        found = _COLUMN.fullmatch(column)
        if found is None:
            raise ConfigError(
                f"{column.strip()!r} is no column of a schema", "Write 'NAME TYPE, ...', as in 'id bigint, x array<float>'."
            )
        quoted, plain, kind, not_null = found.groups()
        name = quoted.replace("``", "`") if quoted else plain
        fields.append(pa.field(name, arrow_type(re.sub(r"\s", "", kind.lower())), nullable=not not_null))
    return pa.schema(fields)


def _simple(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_simple(kind['elementType'])}>"
    return str(kind["type"])


def _columns(text: str) -> Iterator[str]:
    """Split at commas that are in no brackets."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]
