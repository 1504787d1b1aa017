"""Blocks into the arrays of a tf.data element, and what such an element looks like, without TensorFlow.

The structure of an element follows the rows:

* a row that is a tuple (or a DataFrame row of several columns): a tuple with one tensor per field, so rows `(features, label)` give
  `(features, labels)`, as `model.fit` takes them; with `input_mapping`, a dict of tensors;
* a row that is a dict: a dict of tensors;
* any other row (a number, a string, a list or an array of numbers, a DataFrame row of one column): one tensor.

Every tensor's first axis is the batch. Types: NumPy and Arrow types as they are (decimals and dates can not be tensors); Python
float -> float32, int -> int64, bool -> bool, str and bytes -> string.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfos_core.errors import FeedError
from tfos_core.feed.blocks import ArrowBlock, Block, ColumnsBlock, positions, take_columns
from tfos_core.feed.numbers import NumbersBlock
from tfos_core.feed.scattered import Scattered

__all__ = ("arrays", "describe", "describe_mapped", "mapped_arrays")

_SAMPLE_ROWS = 64
#: Of a text in an error.
_SHOWN_CHARACTERS = 80


def describe(block: Block) -> dict[str, Any]:
    """`{"form": "single" | "tuple" | "dict", "tensors": [{"name", "dtype", "shape"}]}`, or `{"problem": why it can not be}`."""
    try:
        form, names, columns = _columns(block, 0, min(len(block), _SAMPLE_ROWS))
        found = [_as_array(column, name) for name, column in zip(names, columns, strict=True)]
    except FeedError as exc:
        return {"problem": exc.message, "hint": exc.hint}
    tensors = [
        {"name": name, "dtype": "string" if array.dtype == object else array.dtype.name, "shape": list(array.shape[1:])}
        for name, array in zip(names, found, strict=True)
    ]
    return {"form": form, "tensors": tensors, "named": isinstance(block, ArrowBlock)}


def arrays(block: Block, start: int, stop: int) -> list[np.ndarray[Any, Any] | Scattered]:
    """One array, or what can be gathered to one, per tensor, in the order of `describe`.

    Raises:
        FeedError: a column holds nulls, rows of different lengths, or values that can not be a tensor.
    """
    _, names, columns = _columns(block, start, stop)
    return [_as_array(column, name) for name, column in zip(names, columns, strict=True)]


def describe_mapped(spec: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """The dict form of a described element: `mapping` is column -> tensor, in lexicographic order of the columns."""
    if "problem" in spec:
        return dict(spec)
    tensors = list(spec["tensors"])
    chosen = {tensor["name"]: tensor for tensor in tensors}
    if not set(mapping) <= set(chosen):
        if spec.get("named") or len(mapping) != len(tensors):
            return {"problem": f"input_mapping names {sorted(mapping)}, but a row has {[tensor['name'] for tensor in tensors]}"}
        chosen = dict(zip(mapping, tensors, strict=True))
    return {"form": "dict", "tensors": [{**chosen[column], "name": tensor} for column, tensor in mapping.items()]}


def mapped_arrays(block: Block, start: int, stop: int, mapping: Mapping[str, str]) -> list[np.ndarray[Any, Any] | Scattered]:
    """One array per mapped column."""
    if isinstance(block, ArrowBlock):
        indices = positions(block.names, tuple(mapping))
        return [_as_array(_arrow_values(block, index, start, stop), block.names[index]) for index in indices]
    columns: Sequence[Any]
    if isinstance(block, NumbersBlock) and block.form.is_tuple and len(block.arrays) == len(mapping):
        columns = block.tensors(start, stop)
    elif isinstance(block, ColumnsBlock) and block.is_tuple and len(block.columns) == len(mapping):
        columns = [column[start:stop] for column in block.columns]
    else:
        columns = take_columns(block, start, stop, tuple(mapping))
    return [_as_array(column, name) for column, name in zip(columns, mapping, strict=True)]


def _columns(block: Block, start: int, stop: int) -> tuple[str, list[str], list[Any]]:
    if isinstance(block, ArrowBlock):
        names = list(block.names)
        form = "single" if len(names) == 1 else "tuple"
        return form, names, [_arrow_values(block, index, start, stop) for index in range(len(names))]
    if isinstance(block, NumbersBlock):
        names = [f"field {index}" for index in range(len(block.arrays))] if block.form.is_tuple else ["row"]
        return "tuple" if block.form.is_tuple else "single", names, block.tensors(start, stop)
    if isinstance(block, ColumnsBlock):
        names = [f"field {index}" for index in range(len(block.columns))] if block.is_tuple else ["row"]
        return "tuple" if block.is_tuple else "single", names, [column[start:stop] for column in block.columns]
    rows = block.rows(start, stop)
    if not rows:
        raise FeedError("a block holds no row")
    first = rows[0]
    if isinstance(first, dict):
        try:
            return "dict", sorted(first), [[row[name] for row in rows] for name in sorted(first)]
        except (KeyError, TypeError) as exc:
            raise FeedError(f"rows are dicts with different keys: {exc}") from exc
    if isinstance(first, tuple):
        try:
            columns: list[Any] = list(zip(*rows, strict=True))
        except (ValueError, TypeError) as exc:
            raise FeedError("rows are tuples of different lengths") from exc
        named: Any = getattr(first, "__fields__", None) or getattr(first, "_fields", ())
        names = list(named) or [f"field {index}" for index in range(len(columns))]
        return "tuple", names, columns
    return "single", ["row"], [rows]


def _arrow_values(block: ArrowBlock, index: int, start: int, stop: int) -> Any:
    """A column as an array where Arrow already holds one (numbers and lists of numbers), else its row values."""
    import pyarrow as pa

    column = block.batch.column(index)
    name = block.names[index]
    if column.null_count:
        raise FeedError(f"column {name!r} holds nulls, which a tensor can not", "Fill or drop them in Spark first (df.na.fill).")
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.slice(start, stop - start).to_numpy(zero_copy_only=False)
    return block.column(index)[start:stop]


def _as_array(column: Sequence[Any] | Scattered, name: str) -> np.ndarray[Any, Any] | Scattered:
    """One array of a column's values."""
    if isinstance(column, Scattered):
        return column
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column if column.dtype.kind != "U" else _strings(column.astype(object).ravel(), name).reshape(column.shape)
    first = column[0] if len(column) else 0.0
    if (packed := _packed_floats(column, first)) is not None:
        return packed
    if isinstance(first, str | bytes | bytearray):
        return _strings(column, name)
    try:
        array = np.asarray(column)
    except ValueError as exc:
        raise FeedError(
            f"the values of {name!r} differ in length or type, so they do not fit into one tensor",
            "Pad them to one length in Spark, or use next_batch().",
        ) from exc
    if array.dtype.kind in "US":
        return _strings(column, name)
    if array.dtype.kind not in "biufc":
        what = "nulls" if any(value is None for value in column) else f"values of type {type(first).__name__}"
        raise FeedError(f"{name!r} holds {what}, which a tensor can not", "Convert the column in Spark, or use next_batch().")
    return array.astype(np.float32) if array.dtype == np.float64 and not _is_numpy(first) else array


def _packed_floats(column: Sequence[Any], first: Any) -> np.ndarray[Any, Any] | None:
    """float32 of Python floats, or of lists of as many floats, in a third of the time of `np.asarray`; None for what needs that."""
    width, rows = (len(first), column) if type(first) in (list, tuple) else (len(column), (column,))
    if not width or type(first if rows is not column else first[0]) is not float:
        return None
    pack = struct.Struct(f"={width}f").pack
    try:
        flat = np.frombuffer(bytearray().join([pack(*row) for row in rows]), np.float32)
    except (struct.error, TypeError, OverflowError):
        return None
    return flat.reshape(len(column), width) if rows is column else flat


def _is_numpy(value: Any) -> bool:
    """Whether a value, or the first one inside nested lists, has a NumPy type, which is kept."""
    while isinstance(value, list | tuple) and len(value):
        value = value[0]
    return isinstance(value, np.ndarray | np.generic)


def _strings(column: Sequence[Any], name: str) -> np.ndarray[Any, Any]:
    """Objects that TensorFlow takes as bytes: texts of ASCII as they are, of which it needs no copy, all others encoded."""
    found = np.empty(len(column), dtype=object)
    if _is_ascii(column):
        found[:] = column
        return found
    kinds = set(map(type, column))
    try:
        if kinds == {str}:
            found[:] = list(map(str.encode, column))
        elif kinds == {bytes}:
            found[:] = column
        elif all(issubclass(kind, str | bytes | bytearray) for kind in kinds):
            found[:] = [value.encode() if isinstance(value, str) else bytes(value) for value in column]
        else:
            raise FeedError(f"{name!r} holds strings and other values, which a tensor can not")
    except UnicodeEncodeError as exc:
        raise FeedError(
            f"{name!r} holds the text {exc.object[:_SHOWN_CHARACTERS]!r}, which UTF-8 can not express",
            "Encode it in Spark as it should be, or use next_batch().",
        ) from exc
    return found


def _is_ascii(column: Sequence[Any]) -> bool:
    """Whether all values are texts of ASCII characters, in a third of the time of encoding them."""
    if not isinstance(column[0], str):
        return False
    try:
        return "".join(column).isascii()
    except TypeError:
        return False
