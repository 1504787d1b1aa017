"""Which Arrow types go to which tensors, and which tensors become which Arrow types; pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from tfos_core.saved_model.signature import TensorSpec

__all__ = ("INTEGERS", "can_hold", "column_type", "depth_of", "is_list", "leaf_type", "numpy_name")

INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
#: Spark has no unsigned numbers and no half floats: the next type that holds all values, except uint64, whose rows are checked.
_COLUMNS = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.int16(),
    "int16": pa.int16(),
    "uint16": pa.int32(),
    "int32": pa.int32(),
    "uint32": pa.int64(),
    "int64": pa.int64(),
    "uint64": pa.int64(),
    "float16": pa.float32(),
    "bfloat16": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}


def column_type(spec: TensorSpec, *, binary: bool) -> Any:
    """The Arrow type of an output's column, or a text that says why there is none."""
    if not spec.is_dense:
        return "it is sparse or ragged"
    if spec.shape is None:
        return "its rank is unknown; give it a shape when you export, with tf.ensure_shape"
    if not spec.shape:
        return "it is one value for all rows"
    if spec.dtype == "string":
        kind = pa.binary() if binary else pa.string()
    elif spec.dtype in _COLUMNS:
        kind = _COLUMNS[spec.dtype]
    else:
        return f"there is no column type for {spec.dtype}"
    for _ in spec.shape[1:]:
        kind = pa.list_(kind)
    return kind


def can_hold(kind: Any, spec: TensorSpec, *, alone: bool) -> str:
    """Why a column of this Arrow type can never go to the input; empty when rows decide."""
    leaf = leaf_type(kind)
    if types.is_map(leaf) or types.is_struct(leaf):
        return "it holds structures; make columns of numbers or strings with data.transform"
    if types.is_temporal(leaf):
        return "dates and times have no form in TensorFlow; make a number of them with data.transform"
    is_text = types.is_string(leaf) or types.is_large_string(leaf) or types.is_binary(leaf) or types.is_large_binary(leaf)
    if spec.dtype == "string":
        return "" if is_text else "the input takes strings or bytes; cast the column to string with data.transform"
    if spec.dtype not in INTEGERS | _FLOATS | {"bool"}:
        return f"tensors of type {spec.dtype} can not be made of columns"
    if is_text:
        return "the input takes numbers; cast the column with data.transform"
    is_exact = types.is_integer(leaf) or types.is_boolean(leaf)
    if not (is_exact or types.is_floating(leaf) or types.is_decimal(leaf)):
        return "it holds no numbers"
    if spec.dtype == "bool" and not is_exact:
        return "the input takes booleans"
    if not alone and spec.shape is not None and len(spec.shape) > 2:
        return "several columns can be put side by side only for an input of two dimensions"
    return ""


def is_list(kind: Any) -> bool:
    """Whether it is any of Arrow's lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def leaf_type(kind: Any) -> Any:
    """What lists of lists hold in the end."""
    while is_list(kind):
        kind = kind.value_type
    return kind


def depth_of(kind: Any) -> int:
    """How many lists are around the leaf."""
    depth = 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    return depth


def numpy_name(dtype: str) -> str:
    """NumPy's type for values on their way into a tensor; bfloat16 exists in TensorFlow only and is cast there."""
    return {"bfloat16": "float32", "string": "object"}.get(dtype, dtype)
