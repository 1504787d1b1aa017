"""NumPy arrays out of pickled batches of rows, all of a block at once.

A batch whose rows hold arrays of one shape is mostly their bytes; what stands between them is the same in every batch of as many
rows. So one batch of each length is unpickled, and looked at opcode by opcode: that gives a template, which says where the bytes of
each array and of each number are. A batch that equals it in every other byte unpickles to the same objects with other contents,
because pickle takes those bytes as they are; so they are copied into one array for each column, when that is asked for: what
becomes part of a larger array is copied only once. What differs is left to `pickle`.
"""

from __future__ import annotations

import itertools
import math
import pickle
import pickletools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfos_core.feed.blocks import ColumnsBlock
from tfos_core.feed.pickled import batches_of
from tfos_core.feed.scattered import Scattered

__all__ = ("ArrayReader",)

Array = np.ndarray[Any, Any]

#: How NumPy's arrays begin in a pickle of protocol 5, near the begin of a batch.
_MARK, _MARK_WITHIN = b"_frombuffer", 256
#: Opcodes whose argument is raw bytes, and how long their length is.
_BYTES = {"SHORT_BINBYTES": 1, "BINBYTES": 4, "BINBYTES8": 8, "BYTEARRAY8": 8}
#: Opcodes of numbers, and how their argument is read.
_NUMBERS = {"BININT1": "u1", "BININT2": "<u2", "BININT": "<i4", "BINFLOAT": ">f8"}
_ARGUMENTS = (bytes, bytearray, int, float)
#: Templates cost a millisecond or more, so they have to be used: so many may be made before, and then one for so many batches.
_TRIES, _USES = 8, 16
_MOST_TEMPLATES = 32
#: Bytes. Around a value stand a hundred more; and a part of a column costs about a microsecond wherever the column is looked at.
_LARGE_BYTES, _PART_BYTES = 512, 16 << 10


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring rows whose bytes of one column are `stride` apart, the first at `offset`."""

    count: int
    offset: int
    stride: int


@dataclass(frozen=True, slots=True)
class _Column:
    """Where the bytes of a column's values are; `shape` is None for Python's numbers."""

    kind: np.dtype[Any]
    shape: tuple[int, ...] | None
    runs: tuple[_Run, ...]
    #: Of one value.
    row_bytes: int

    def byte_rows(self, data: Array) -> Iterator[Array]:
        """Views of the bytes of all rows of a batch."""
        for run in self.runs:
            yield np.ndarray((run.count, self.row_bytes), np.uint8, data, run.offset, (run.stride, 1))


@dataclass(frozen=True, slots=True)
class _Template:
    """A batch: `places` are those of all bytes that do not belong to a value, and `fixed` are these bytes."""

    rows: int
    is_tuple: bool
    columns: tuple[_Column, ...]
    places: Array
    fixed: Array

    @property
    def form(self) -> Any:
        """What batches of one block have in common."""
        return self.is_tuple, [(column.kind, column.shape) for column in self.columns]

    def fits(self, data: Array) -> bool:
        """Whether a batch differs in nothing but its values."""
        return bool((data[self.places] == self.fixed).all())


@dataclass(slots=True)
class ArrayReader:
    """Reads the blocks of one feed; keeps templates by the length of a batch."""

    _templates: dict[int, _Template] = field(default_factory=dict)
    _made: int = 0
    _used: int = 0

    def read(self, payload: Any) -> ColumnsBlock | None:
        """The rows of a RAW_PICKLE payload (batches with their lengths), or None when they are of another kind."""
        if self._made > _TRIES + self._used // _USES or _MARK not in bytes(memoryview(payload)[:_MARK_WITHIN]):
            return None
        found: list[tuple[_Template, Array]] = []
        for batch in batches_of(payload):
            template = self._template(batch)
            if template is None or (found and found[0][0].form != template.form):
                return None
            found.append((template, batch))
        return _joined(found)

    def _template(self, batch: Array) -> _Template | None:
        known = self._templates.get(len(batch))
        if known is not None and known.fits(batch):
            self._used += 1
            return known
        self._made += 1
        made = _made_of(batch) if self._made <= _TRIES + self._used // _USES else None
        if made is not None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.pop(next(iter(self._templates)))
            self._templates[len(batch)] = made
        return made


def _joined(found: Sequence[tuple[_Template, Array]]) -> ColumnsBlock:
    first = found[0][0]
    columns: list[Any] = []
    for place, column in enumerate(first.columns):
        parts = tuple(itertools.chain.from_iterable(template.columns[place].byte_rows(batch) for template, batch in found))
        values = Scattered(column.kind, column.shape or (), parts)
        if column.shape is None:
            columns.append(values.gathered().tolist())
        else:
            columns.append(values if _may_stay(column, values) else values.gathered())
    return ColumnsBlock(first.is_tuple, columns)


def _may_stay(column: _Column, values: Scattered) -> bool:
    """Whether a column may wait in the payload for the array that it becomes part of: it keeps all of the payload in memory."""
    return column.row_bytes >= _LARGE_BYTES and column.row_bytes * len(values) >= _PART_BYTES * len(values.parts)


def _made_of(batch: Array) -> _Template | None:
    """The template of a batch; None when its rows are not all alike, or hold anything but arrays and numbers."""
    data = batch.tobytes()
    try:
        rows = pickle.loads(data, encoding="bytes")
    except Exception:  # noqa: BLE001 - whoever unpickles the block for its rows says what is wrong
        return None
    if type(rows) is not list or not rows:
        return None
    is_tuple = type(rows[0]) is tuple
    if is_tuple and (set(map(type, rows)) != {tuple} or len(set(map(len, rows))) != 1):
        return None
    values = list(itertools.chain.from_iterable(rows)) if is_tuple else rows
    width = len(rows[0]) if is_tuple else 1
    kinds = [_kind_of(values[place::width]) for place in range(width)]
    offsets = _offsets(data, values)
    if offsets is None or not all(kinds) or not any(shape is not None for _, shape in filter(None, kinds)):
        return None
    columns = []
    for place, found in enumerate(filter(None, kinds)):
        name, shape = found
        own = offsets[place::width]
        read_as = {as_ for _, as_ in own}
        if shape is None and len(read_as) != 1:
            return None
        kind = np.dtype(name if shape is not None else read_as.pop())
        columns.append(_Column(kind, shape, _runs([at for at, _ in own]), kind.itemsize * math.prod(shape or ())))
    places = np.ones(len(data), np.bool_)
    for column, (start, _) in ((columns[at % width], offset) for at, offset in enumerate(offsets)):
        places[start : start + column.row_bytes] = False
    fixed = np.flatnonzero(places)
    template = _Template(len(rows), is_tuple, tuple(columns), fixed, batch[fixed].copy())
    return template if _is_proven(template, batch) else None


def _kind_of(values: Sequence[Any]) -> tuple[str, tuple[int, ...] | None] | None:
    """The type and shape of a column's arrays, or None as the shape of Python's numbers."""
    first = values[0]
    if type(first) in (int, float):
        return ("", None) if set(map(type, values)) == {type(first)} else None
    if type(first) is not np.ndarray or first.dtype.kind not in "biufc" or not first.size:
        return None
    alike = all(
        type(value) is np.ndarray and value.dtype == first.dtype and value.shape == first.shape and value.flags.c_contiguous
        for value in values
    )
    return (first.dtype.str, first.shape) if alike else None


def _offsets(data: bytes, values: Sequence[Any]) -> list[tuple[int, str]] | None:
    """Where the bytes of each value are, and as what a number is read; None when they are not in the order of the values."""
    found: list[tuple[int, str]] = []
    opcodes = pickletools.genops(data)
    for value in values:
        is_array = isinstance(value, np.ndarray)
        wanted = value.tobytes() if is_array else value
        for opcode, argument, position in opcodes:
            if opcode.name in (_BYTES if is_array else _NUMBERS) and type(argument) in _ARGUMENTS and argument == wanted:
                found.append(((position or 0) + 1 + _BYTES.get(opcode.name, 0), _NUMBERS.get(opcode.name, "")))
                break
        else:
            return None
        if is_array:
            _skip_rest(opcodes)
    return found


def _skip_rest(opcodes: Iterator[tuple[Any, Any, Any]]) -> None:
    """Go on behind what makes an array of its bytes: numbers on the way are its shape's."""
    tuples = ""
    for opcode, _, _ in opcodes:
        if "TUPLE" in opcode.name:
            tuples = opcode.name
        elif opcode.name == "REDUCE" and tuples == "TUPLE":
            # Its four arguments stand behind a mark; those of a type, which is made within, are a TUPLE3.
            return


def _is_proven(template: _Template, batch: Array) -> bool:
    """Whether other bytes at the places of the values unpickle to just these values: it would show a place that is not one."""
    other = batch.copy()
    random = np.random.default_rng(0)
    mask = np.ones(len(batch), np.bool_)
    mask[template.places] = False
    # Below 64: whole numbers stay positive, and floats are no NaN.
    other[mask] = random.integers(0, 64, int(mask.sum()), np.uint8)
    try:
        rows = pickle.loads(other.tobytes(), encoding="bytes")
    except Exception:  # noqa: BLE001 - whatever pickle makes of a shape or a type that was changed
        return False
    expected = _joined([(template, other)])
    wanted = expected.rows(0, len(expected))
    return len(rows) == len(wanted) and all(map(_is_same, rows, wanted))


def _is_same(row: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return type(row) is tuple and len(row) == len(wanted) and all(map(_is_same, row, wanted))
    if isinstance(wanted, np.ndarray):
        alike = type(row) is np.ndarray and (row.dtype, row.shape) == (wanted.dtype, wanted.shape)
        return alike and row.tobytes() == wanted.tobytes()
    return type(row) is type(wanted) and row == wanted


def _runs(offsets: Sequence[int]) -> tuple[_Run, ...]:
    """Neighbours that are as far from each other."""
    runs: list[_Run] = []
    for offset in offsets:
        last = runs[-1] if runs else None
        if last is not None and (last.count == 1 or offset == last.offset + last.count * last.stride):
            stride = offset - last.offset if last.count == 1 else last.stride
            runs[-1] = _Run(last.count + 1, last.offset, stride)
        else:
            runs.append(_Run(1, offset, 0))
    return tuple(runs)
