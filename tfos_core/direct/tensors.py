"""Columns of Arrow record batches as the arrays of a tf.data element, without TensorFlow. The form is that of `feed.elements`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfos_core.direct.errors import DataError
from tfos_core.errors import ConfigError

__all__ = ("Array", "Element", "Tensor", "array_of", "arrays_of", "choose_columns", "describe")

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of an element: its column, its name in a dict, NumPy's name of its type or "string", and the shape of one row."""

    column: str
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """What a dataset yields: a dict of tensors with an input mapping, one tensor for one column, else a tuple."""

    tensors: tuple[Tensor, ...]
    is_dict: bool

    def structured(self, values: Sequence[Any]) -> Any:
        """One value for each tensor, in the form of the element."""
        if self.is_dict:
            return {tensor.name: value for tensor, value in zip(self.tensors, values, strict=True)}
        return values[0] if len(values) == 1 else tuple(values)


def choose_columns(names: Sequence[str], columns: Sequence[str] | None, mapping: Mapping[str, str] | None) -> tuple[str, ...]:
    """The columns to read, in their order: those that are mapped by name, else those that were chosen, else all.

    Raises:
        ConfigError: there are no such columns.
    """
    chosen = tuple(sorted(mapping)) if mapping else tuple(columns) if columns else tuple(names)
    missing = [name for name in chosen if name not in names]
    if missing:
        raise ConfigError(f"there is no column {missing[0]!r}", f"Columns are {', '.join(names)}.")
    return chosen


def describe(sample: Any, mapping: Mapping[str, str] | None, path: str) -> Element:
    """The element of batches like `sample`, which has at least one row.

    Raises:
        DataError: a column can not be a tensor; names `path`.
    """
    tensors = []
    for name, array in zip(sample.schema.names, arrays_of(sample, path), strict=True):
        dtype = "string" if array.dtype == object else array.dtype.name
        tensors.append(Tensor(column=name, name=mapping[name] if mapping else name, dtype=dtype, shape=array.shape[1:]))
    return Element(tensors=tuple(tensors), is_dict=bool(mapping))


def arrays_of(batch: Any, path: str, element: Element | None = None) -> list[Array]:
    """One array for each column; its first axis is the rows.

    Raises:
        DataError: a column holds nulls or lists of different lengths, or rows of another shape than the element's; names `path`.
    """
    arrays = [array_of(column, name, path) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    for tensor, array in zip(element.tensors if element else (), arrays, strict=False):
        if array.shape[1:] != tensor.shape:
            raise DataError(
                f"{path}: values of {tensor.column!r} have the shape {list(array.shape[1:])}, but the first ones have "
                f"{list(tensor.shape)}",
                "Pad them to one length when the files are written.",
            )
    return arrays


def array_of(column: Any, name: str, path: str) -> Array:
    """An Arrow array as NumPy's: numbers as they are, strings as objects (bytes), equally long lists as more axes.

    Raises:
        DataError: as `arrays_of`.
    """
    kind = column.type
    if column.null_count:
        raise DataError(
            f"{path}: column {name!r} holds nulls, which a tensor can not",
            "Fill or drop them when the files are written, or read other columns.",
        )
    if pa.types.is_dictionary(kind):
        return array_of(column.dictionary_decode(), name, path)
    if pa.types.is_fixed_size_list(kind):
        inner = array_of(column.flatten(), name, path)
        return inner.reshape(len(column), kind.list_size, *inner.shape[1:])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, name, path)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        large = pa.types.is_large_string(kind)
        return array_of(column.cast(pa.large_binary() if large else pa.binary()), name, path)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        objects: Array = np.empty(len(column), dtype=object)
        objects[:] = column.to_pylist()
        return objects
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    raise DataError(
        f"{path}: column {name!r} has the type {kind}, which no tensor has",
        "Cast it to a number or a string when the files are written, or read other columns.",
    )


def _lists(column: Any, name: str, path: str) -> Array:
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    if len(lengths) and (lengths != lengths[0]).any():
        raise DataError(
            f"{path}: the values of {name!r} have different lengths ({int(lengths.min())} to {int(lengths.max())}), so they do not "
            "fit into one tensor",
            "Pad them to one length when the files are written.",
        )
    inner = array_of(column.flatten(), name, path)
    return inner.reshape(len(column), int(lengths[0]) if len(lengths) else 0, *inner.shape[1:])
