"""Rows of numbers as arrays that give back exactly the Python values they were made of.

Unpickling a list of 784 Python floats takes as long as anything else that is done with it. An array of the same numbers can be
sliced, kept and given to TensorFlow without touching them one by one, and `tolist` makes the very same floats again. Arrays are as
small as the values allow: float32 where that loses no bit of any value, the smallest integers that hold all of a block.

Made of rows that are tuples of one length, or single values, whose fields are all of one exact type: float, int, bool, str, bytes,
or lists (of lists) or a tuple of one length of the first three. Everything else is left as it is.
"""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

__all__ = ("Form", "NumbersBlock", "compact", "to_numbers")

Array = np.ndarray[Any, Any]
_Kind = Literal["numbers", "tuples", "texts"]

_TENSOR_TYPES: dict[str, Any] = {"f": np.float32, "i": np.int64, "u": np.int64}
_INTEGERS = (np.uint8, np.int8, np.int16, np.int32)
#: From this share of whole numbers on, looking at every type is quicker than looking at those of whole numbers.
_MANY_WHOLE = 0.25


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are made of columns; a row of `tuples` is a tuple of numbers, `texts` are pickled."""

    is_tuple: bool
    kinds: tuple[_Kind, ...]


@dataclass(slots=True)
class NumbersBlock:
    """Rows as columns; `original` are the rows themselves, while they are there."""

    form: Form
    arrays: tuple[Array, ...]
    size: int
    original: Sequence[Any] | None = None
    _texts: dict[int, list[Any]] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return self.size

    def rows(self, start: int, stop: int) -> list[Any]:
        """The rows from `start` up to `stop`, made anew with every call."""
        if self.original is not None:
            return list(self.original[start:stop])
        columns = self.values(start, stop)
        return list(zip(*columns, strict=True)) if self.form.is_tuple else columns[0]

    def values(self, start: int, stop: int) -> list[list[Any]]:
        """The columns of some rows as lists of Python values."""
        return [self._values(place, start, stop) for place in range(len(self.arrays))]

    def tensors(self, start: int, stop: int) -> list[Any]:
        """The columns of some rows as arrays (mostly views, not to be changed) of the types of tensors, or as lists of texts."""
        # Once for all columns, of which there may be many: it takes longer than converting some hundred numbers.
        with np.errstate(over="ignore"):
            return [
                self._values(place, start, stop) if kind == "texts" else _as_tensor(array[start:stop])
                for place, (kind, array) in enumerate(zip(self.form.kinds, self.arrays, strict=True))
            ]

    def _values(self, place: int, start: int, stop: int) -> list[Any]:
        kind, array = self.form.kinds[place], self.arrays[place]
        if kind == "texts":
            if place not in self._texts:
                self._texts[place] = pickle.loads(array.tobytes())
            return self._texts[place][start:stop]
        values: list[Any] = array[start:stop].tolist()
        return list(map(tuple, values)) if kind == "tuples" else values


def to_numbers(rows: Sequence[Any]) -> NumbersBlock | None:
    """The rows as arrays, or None when they are of another kind.

    Args:
        rows: of built-in types only: an object with `__float__` would be taken for the number that it gives.
    """
    if not rows:
        return None
    is_tuple = type(rows[0]) is tuple
    if is_tuple and (set(map(type, rows)) != {tuple} or len(set(map(len, rows))) != 1 or not rows[0]):
        return None
    kinds: list[_Kind] = []
    arrays: list[Array] = []
    for column in zip(*rows, strict=True) if is_tuple else (rows,):
        found = _column(column)
        if found is None:
            return None
        kinds.append(found[0])
        arrays.append(found[1])
    if set(kinds) == {"texts"}:
        # Texts are unpickled as quickly as they are.
        return None
    return NumbersBlock(Form(is_tuple, tuple(kinds)), tuple(arrays), len(rows), rows)


def compact(block: NumbersBlock) -> NumbersBlock:
    """The same rows, with arrays as small as the values allow."""
    arrays = tuple(
        array if kind == "texts" else _smaller(array) for kind, array in zip(block.form.kinds, block.arrays, strict=True)
    )
    return NumbersBlock(block.form, arrays, block.size, block.original)


def _as_tensor(array: Array) -> Array:
    """Python floats are float32 in tensors, and integers int64."""
    return array.astype(_TENSOR_TYPES.get(array.dtype.kind, array.dtype), copy=False)


def _column(column: Sequence[Any]) -> tuple[_Kind, Array] | None:
    first = type(column[0])
    if first in (list, tuple):
        array = _nested(column)
        return None if array is None else ("tuples" if first is tuple else "numbers", array)
    if set(map(type, column)) != {first}:
        return None
    if first in (str, bytes):
        return "texts", np.frombuffer(pickle.dumps(list(column), protocol=5), np.uint8)
    array = _typed(first, lambda kind: np.array(column, kind))
    return None if array is None else ("numbers", array)


def _nested(column: Sequence[Any]) -> Array | None:
    """One array of lists (of lists) of as many numbers of one type."""
    first = column[0]
    if set(map(type, column)) != {type(first)} or len(set(map(len, column))) != 1 or not first:
        return None
    width = len(first)
    if type(first[0]) is list and type(first) is list:
        inner = _nested(list(itertools.chain.from_iterable(column)))
        return None if inner is None else inner.reshape(len(column), width, *inner.shape[1:])
    try:
        pack = struct.Struct(f"={width}d").pack
        doubles = np.frombuffer(bytearray().join([pack(*row) for row in column]), np.float64)
        found = _element_type(column, doubles, width)
        array = _typed(found, lambda kind: doubles if kind is np.float64 else np.array(column, kind))
    except (struct.error, TypeError, OverflowError):
        return None
    return None if array is None else array.reshape(len(column), width)


def _element_type(column: Sequence[Any], doubles: Array, width: int) -> type | None:
    """The one exact type of all numbers. Only whole numbers have to be looked at: others can be nothing else than floats."""
    whole = np.flatnonzero(doubles == np.trunc(doubles))
    if len(whole) > _MANY_WHOLE * len(doubles):
        types = set(map(type, itertools.chain.from_iterable(column)))
    else:
        types = {type(column[place // width][place % width]) for place in whole.tolist()} | {float}
    return types.pop() if len(types) == 1 else None


def _typed(found: type | None, make: Callable[[Any], Array]) -> Array | None:
    """The array of values of one type, as small as it can be."""
    if found is float:
        return _smaller(make(np.float64))
    if found is bool:
        return make(np.bool_)
    if found is int:
        try:
            array = make(np.int64)
        except OverflowError:
            return None
        return _smaller(array)
    return None


def _smaller(array: Array) -> Array:
    if array.dtype.kind == "f":
        return _smaller_floats(array)
    if array.dtype.kind == "b":
        return array
    least, most = int(array.min()), int(array.max())
    fits = (kind for kind in _INTEGERS if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return array.astype(next(fits, np.int64))


def _smaller_floats(array: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        smaller = array.astype(np.float32)
        # Bits, not values: neither -0.0 nor what is in a NaN may change.
        same = (smaller.astype(np.float64).view(np.int64) == array.view(np.int64)).all()
    return smaller if same else array
