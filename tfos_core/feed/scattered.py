"""A column of arrays of one shape whose bytes lie where they arrived: copied once, into the array that is wanted in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ("Scattered", "byte_rows")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Values of `value_shape` and `dtype`; `parts` are the bytes of some rows each: uint8, of two axes, with any strides.

    Whoever makes one sees to it that parts are few for their bytes: a slice looks at each of them.
    """

    dtype: np.dtype[Any]
    value_shape: tuple[int, ...]
    parts: tuple[Array, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array that it will be."""
        return len(self), *self.value_shape

    def __getitem__(self, rows: slice) -> Scattered:
        """Some rows, copying none.

        Raises:
            ValueError: the slice has a step.
        """
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"a scattered column can not be sliced with a step of {step}")
        return Scattered(self.dtype, self.value_shape, tuple(_within(self.parts, start, stop)))

    def gathered(self) -> Array:
        """The array, which the program may change."""
        width = self.dtype.itemsize * int(np.prod(self.value_shape, dtype=np.intp))
        room = np.empty((len(self), width), np.uint8)
        if self.parts:
            np.concatenate(self.parts, out=room)
        return room.view(self.dtype).reshape(self.shape)


def byte_rows(columns: Sequence[Array | Scattered], dtype: np.dtype[Any]) -> list[Array] | None:
    """The bytes of these columns' rows, in uint8 arrays of two axes that can be joined; None when one is not of this very type.

    Values of all columns have one shape.
    """
    if any(column.dtype != dtype for column in columns):
        return None
    found: list[Array] = []
    for column in columns:
        if isinstance(column, Scattered):
            found += column.parts
        elif len(column):
            found.append(np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8))
    return found


def _within(parts: Sequence[Array], start: int, stop: int) -> Iterator[Array]:
    position = 0
    for part in parts:
        first, last = max(start - position, 0), min(stop - position, len(part))
        if first < last:
            yield part[first:last]
        position += len(part)
        if position >= stop:
            return
