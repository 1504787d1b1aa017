"""Columns of an Arrow batch as the arrays that a signature takes, and the rows that do not fit; pure.

What nearly always holds is done in bulk: no null, and one shape for all rows. Then numbers go from Arrow to NumPy without a copy
when they have the right type already. Only a batch in which that does not hold is looked at row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tfos_core.saved_model.binding import InputBinding
from tfos_core.saved_model.signature import TensorSpec
from tfos_core.saved_model.types import INTEGERS, depth_of, is_list, numpy_name

__all__ = ("Piece", "Rejected", "prepare")

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
#: Row of the batch -> why it can not be computed.
Rejected = dict[int, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a batch, by their numbers, whose arrays have one shape."""

    rows: Array
    arrays: dict[str, Array]


class _OddError(Exception):
    """Rows differ in shape, or something is null."""


def prepare(batch: Any, inputs: Sequence[InputBinding]) -> tuple[list[Piece], Rejected]:
    """Pieces in the order of the rows, and the rows in none of them."""
    rows = np.arange(batch.num_rows)
    if not batch.num_rows:
        return [], {}
    try:
        arrays, rejected = _convert(batch, inputs)
    except _OddError:
        return _one_by_one(batch, inputs)
    if rejected:
        return _without(Piece(rows, arrays), rejected)
    return [Piece(rows, arrays)], {}


def _without(piece: Piece, rejected: Rejected) -> tuple[list[Piece], Rejected]:
    """A piece without some of its rows, which are counted from 0 in it; those of the result are the batch's."""
    good = np.ones(len(piece.rows), dtype=bool)
    good[list(rejected)] = False
    named = {int(piece.rows[row]): why for row, why in rejected.items()}
    if not good.any():
        return [], named
    return [Piece(piece.rows[good], {name: array[good] for name, array in piece.arrays.items()})], named


def _one_by_one(batch: Any, inputs: Sequence[InputBinding]) -> tuple[list[Piece], Rejected]:
    rejected: Rejected = {}
    shapes: list[list[Shape]] = [[] for _ in range(batch.num_rows)]
    for one in inputs:
        columns = [_row_shapes(batch.column(name)) for name in one.columns]
        for row in range(batch.num_rows):
            if row in rejected:
                continue
            found = [column[row] for column in columns]
            wrong = next(
                (f"column {name!r} {why}" for name, why in zip(one.columns, found, strict=True) if isinstance(why, str)), ""
            )
            if not wrong:
                natural = [shape for shape in found if not isinstance(shape, str)]
                fitted = _fit(_combined(natural), one.spec)
                wrong = f"{_names(one.columns)} {fitted}" if isinstance(fitted, str) else ""
                shapes[row] += natural
            if wrong:
                rejected[row] = wrong
    pieces: list[Piece] = []
    for run in _runs([row for row in range(batch.num_rows) if row not in rejected], shapes):
        arrays, wrong_rows = _convert(batch.take(pa.array(run)), inputs)
        found_pieces, found_rejected = _without(Piece(np.array(run), arrays), wrong_rows)
        pieces += found_pieces
        rejected |= found_rejected
    return pieces, rejected


def _runs(rows: Sequence[int], shapes: Sequence[list[Shape]]) -> Iterator[list[int]]:
    """Neighbours of one shape."""
    run: list[int] = []
    for row in rows:
        if run and shapes[row] != shapes[run[-1]]:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _convert(batch: Any, inputs: Sequence[InputBinding]) -> tuple[dict[str, Array], Rejected]:
    """Arrays of a batch whose rows have one shape.

    Raises:
        _OddError: they have not, or something is null, or the shape does not fit.
    """
    rejected: Rejected = {}
    arrays: dict[str, Array] = {}
    count = batch.num_rows
    for one in inputs:
        parts, shapes = [], []
        for name in one.columns:
            flat, shape = _leaves(batch.column(name))
            values, wrong = _values(flat, one.spec.dtype)
            if wrong is not None:
                for row in np.flatnonzero(wrong.reshape(count, -1).any(axis=1)):
                    rejected.setdefault(int(row), f"column {name!r} has a value that {one.spec.dtype} can not hold")
            parts.append(values)
            shapes.append(shape)
        fitted = _fit(_combined(shapes), one.spec)
        if isinstance(fitted, str):
            raise _OddError
        arrays[one.spec.name] = _joined(parts, shapes, count).reshape(count, *fitted)
    return arrays, rejected


def _joined(parts: Sequence[Array], shapes: Sequence[Shape], count: int) -> Array:
    if len(parts) == 1:
        return parts[0]
    widths = [math.prod(shape) for shape in shapes]
    joined = np.empty((count, sum(widths)), dtype=parts[0].dtype)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        joined[:, start : start + width] = part.reshape(count, width)
        start += width
    return joined


def _combined(shapes: Sequence[Shape]) -> Shape:
    """The shape of a row: a column's own, or that of several side by side."""
    return shapes[0] if len(shapes) == 1 else (sum(math.prod(shape) for shape in shapes),)


def _leaves(column: Any) -> tuple[Any, Shape]:
    shape: list[int] = []
    while is_list(column.type):
        if column.null_count:
            raise _OddError
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if (lengths != lengths[0]).any() if len(lengths) else shape:
            raise _OddError
        shape.append(int(lengths[0]))
        column = column.flatten()
    if column.null_count:
        raise _OddError
    return column, tuple(shape)


def _fit(shape: Shape, spec: TensorSpec) -> Shape | str:
    """The shape that a row of this shape gets in the tensor, or why there is none."""
    if spec.shape is None:
        return shape
    target = spec.shape[1:]
    if len(target) == len(shape) and all(size is None or size == own for size, own in zip(target, shape, strict=True)):
        return shape
    own, known = math.prod(shape), math.prod(size for size in target if size is not None)
    unknown = target.count(None)
    if unknown == 0 and own == known:
        return tuple(size for size in target if size is not None)
    if unknown == 1 and known and own % known == 0:
        return tuple(own // known if size is None else size for size in target)
    return f"has {_shown(shape)}, but the input {spec} takes {_shown(target)}"


def _shown(shape: Sequence[int | None]) -> str:
    if not shape:
        return "1 value"
    text = " x ".join("?" if size is None else str(size) for size in shape)
    return f"{text} values"


def _values(flat: Any, dtype: str) -> tuple[Array, Array | None]:
    """Flat values of a tensor's type, and a mask of those that can not be it."""
    if dtype == "string":
        return flat.cast(pa.binary()).to_numpy(zero_copy_only=False), None
    if types.is_decimal(flat.type):
        flat = pc.cast(flat, pa.float64())
    source: Array = flat.to_numpy(zero_copy_only=False)
    target = np.dtype(numpy_name(dtype))
    if source.dtype == target:
        return source, None
    if source.dtype == np.bool_ or np.can_cast(source.dtype, target, "safe"):
        return source.astype(target), None
    if dtype == "bool":
        return source.astype(target), _any((source != 0) & (source != 1))
    if dtype in INTEGERS:
        return _to_integers(source, target)
    try:
        with np.errstate(over="raise"):
            return source.astype(target), None
    except FloatingPointError:
        with np.errstate(over="ignore"):
            values = source.astype(target)
        return values, _any(np.isinf(values) & np.isfinite(source))


def _to_integers(source: Array, target: Any) -> tuple[Array, Array | None]:
    limits = np.iinfo(target)
    if source.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            # The largest float64 below 2^63 is far from it, so that a strict comparison with limits.max + 1 is exact.
            good = (source >= float(limits.min)) & (source < float(limits.max) + 1) & (source == np.trunc(source))
        return np.where(good, source, 0).astype(target), _any(~good)
    wrong = (source < limits.min) | (source > limits.max) if limits.max < np.iinfo(source.dtype).max else source < limits.min
    return source.astype(target), _any(wrong)


def _any(wrong: Array) -> Array | None:
    return wrong if wrong.any() else None


def _row_shapes(column: Any) -> list[Shape | str]:
    """The shape of every row, or what is wrong with it."""
    if depth_of(column.type) == 0:
        return ["is null" if null else () for null in column.is_null().to_numpy(zero_copy_only=False)]
    if depth_of(column.type) > 1:
        return [_shape_of(value.as_py()) for value in column]
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    shapes: list[Shape | str] = [(int(size),) for size in lengths]
    for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
        shapes[row] = "is null"
    flat = column.flatten()
    if flat.null_count:
        owners = np.repeat(np.arange(len(column)), lengths)
        for row in np.unique(owners[flat.is_null().to_numpy(zero_copy_only=False)]):
            shapes[row] = "has a null in its list"
    return shapes


def _shape_of(value: Any) -> Shape | str:
    """The shape of nested lists."""
    if value is None:
        return "is null"
    if not isinstance(value, list):
        return ()
    inner = [_shape_of(one) for one in value]
    if any(isinstance(shape, str) for shape in inner):
        return next("has a null in its lists" if shape == "is null" else shape for shape in inner if isinstance(shape, str))
    if len(set(inner)) > 1:
        return "has lists of different lengths"
    first = inner[0] if inner else ()
    return (len(value), *first) if not isinstance(first, str) else first


def _names(columns: Sequence[str]) -> str:
    return f"column {columns[0]!r}" if len(columns) == 1 else f"columns {', '.join(repr(name) for name in columns)} together"
