"""How columns and features correspond: kinds of features, Arrow types, and the conversion of leaf values; pure.

| column                                       | feature                                                     |
|----------------------------------------------|-------------------------------------------------------------|
| boolean                                      | int64_list, 0 or 1 (reading: anything but 0 is true)        |
| tinyint, smallint, int, bigint               | int64_list                                                  |
| date, timestamp, timestamp_ntz               | int64_list: days, microseconds since 1970-01-01 (UTC)       |
| float, double                                | float_list, 32 bits: that is all a TFRecord has             |
| string, binary                               | bytes_list, UTF-8                                           |
| decimal                                      | bytes_list, its digits as text: exact                       |
| array of these                               | the same list with any number of values                     |
| array of arrays                              | SequenceExample: a feature list                             |
| null                                         | no feature                                                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfos_core.errors import ConfigError

__all__ = ("BYTE_ARRAY_COLUMN", "Field", "Kind", "RecordType", "fields_of", "to_wire")

#: The name of the only column of `recordType=ByteArray`.
BYTE_ARRAY_COLUMN = "byteArray"


class RecordType(StrEnum):
    """What a record holds."""

    EXAMPLE = "Example"
    SEQUENCE_EXAMPLE = "SequenceExample"
    BYTE_ARRAY = "ByteArray"


class Kind(IntEnum):
    """The list inside a feature; the values are the numbers of the protobuf fields, 0 for a feature without a list."""

    NONE = 0
    BYTES = 1
    FLOAT = 2
    INT64 = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as features: `depth` is 0 for a value, 1 for a list, 2 for a list of lists; `leaf` is the Arrow type of a value."""

    name: str
    kind: Kind
    depth: int
    leaf: Any
    type: Any
    nullable: bool = True


def fields_of(schema: Any, record_type: RecordType) -> tuple[Field, ...]:
    """The columns of an Arrow schema as features.

    Raises:
        ConfigError: a column has a type that records of this kind can not hold, or two columns have one name.
    """
    fields = tuple(_field(column) for column in schema)
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigError(f"columns of the same name can not be told apart in a record: {', '.join(twice)}", "Rename them.")
    if record_type is RecordType.BYTE_ARRAY and [(f.kind, f.depth) for f in fields] != [(Kind.BYTES, 0)]:
        shown = ", ".join(f"{column.name} {column.type}" for column in schema)
        raise ConfigError(
            f"recordType ByteArray takes exactly one binary column, and there is ({shown})",
            f"Select the column of serialised records, as `{BYTE_ARRAY_COLUMN}`.",
        )
    nested = [field.name for field in fields if field.depth == 2]
    if nested and record_type is RecordType.EXAMPLE:
        raise ConfigError(
            f"column {nested[0]!r} is an array of arrays, which a tf.train.Example can not hold",
            "Set recordType to SequenceExample, or use flatten() and keep the shape elsewhere.",
        )
    return fields


def to_wire(values: Any, field: Field) -> Any:
    """Leaf values (an Arrow array without nulls that matter) as int64, float32 or binary.

    Raises:
        ConfigError: a double is too large for 32 bits.
    """
    if field.kind is Kind.BYTES:
        if pa.types.is_decimal(values.type):
            values = pc.cast(values, pa.string())
        return values if pa.types.is_binary(values.type) or pa.types.is_string(values.type) else pc.cast(values, pa.binary())
    if field.kind is Kind.FLOAT:
        return _to_float32(values, field.name)
    if pa.types.is_timestamp(values.type) and values.type.unit != "us":
        values = pc.cast(values, pa.timestamp("us", values.type.tz))
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64())


def _to_float32(values: Any, name: str) -> Any:
    if values.type == pa.float32():
        return values
    narrow = values.cast(pa.float32(), safe=False)
    if pa.types.is_float64(values.type) and np.isinf(_numbers(narrow)).any():
        lost = np.isinf(_numbers(narrow)) & np.isfinite(_numbers(values))
        if lost.any():
            raise ConfigError(
                f"column {name!r} has the value {_numbers(values)[lost][0]}, and a 32-bit float ends at 3.4e38",
                "A TFRecord has no other floats: scale the column, or cast it to string.",
            )
    return narrow


def _numbers(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)


def _field(column: Any) -> Field:
    leaf, depth = column.type, 0
    while pa.types.is_list(leaf) or pa.types.is_large_list(leaf) or pa.types.is_fixed_size_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    kind = _kind(leaf)
    if kind is Kind.NONE or depth > 2:
        raise ConfigError(f"column {column.name!r} has the type {column.type}, which a TFRecord can not hold", _hint(leaf))
    return Field(name=column.name, kind=kind, depth=depth, leaf=leaf, type=column.type, nullable=column.nullable)


def _kind(leaf: Any) -> Kind:
    types = pa.types
    if types.is_boolean(leaf) or types.is_integer(leaf) or types.is_date32(leaf) or types.is_timestamp(leaf):
        return Kind.INT64
    if types.is_floating(leaf):
        return Kind.FLOAT
    binary = types.is_binary(leaf) or types.is_large_binary(leaf) or types.is_fixed_size_binary(leaf)
    if binary or types.is_string(leaf) or types.is_large_string(leaf) or types.is_decimal(leaf):
        return Kind.BYTES
    return Kind.NONE


def _hint(leaf: Any) -> str:
    if pa.types.is_struct(leaf) and {field.name for field in leaf} >= {"indices", "values"}:
        return "Convert the ML vector with pyspark.ml.functions.vector_to_array first."
    if pa.types.is_struct(leaf):
        return "Select the fields of the struct as columns of their own."
    if pa.types.is_map(leaf):
        return "Split the map into map_keys() and map_values(), two arrays."
    return "Cast the column to a number, string, binary, or an array of these."
