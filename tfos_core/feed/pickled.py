"""Numbers out of a pickled batch of rows, without making a Python object of each.

Spark pickles rows in batches, with protocol 5. When all rows of a batch are alike (tuples of floats, or of floats, integers,
booleans and lists of floats), they differ in nothing but the numbers: every row has as many bytes, and the numbers are at the same
places. The first row is read opcode by opcode; all others have to be equal to it in every byte that is not part of a number.
Whatever looks different in the slightest is left to `pickle`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfos_core.feed.numbers import Form, NumbersBlock

__all__ = ("batches_of", "pickled_numbers")

Array = np.ndarray[Any, Any]

_PROTOCOL, _PROTOCOLS, _FRAME = 0x80, (4, 5), 0x95
_STOP, _MARK, _MEMOIZE = ord("."), ord("("), 0x94
_EMPTY_LIST, _APPEND, _APPENDS = ord("]"), ord("a"), ord("e")
_TUPLE, _TUPLES = ord("t"), (0x85, 0x86, 0x87)
_FLOAT, _FLOAT_BYTES = ord("G"), 9
_TRUE, _FALSE = 0x88, 0x89
#: Opcode of an integer -> how its bytes are to be read.
_INTEGERS: dict[int, np.dtype[Any]] = {ord("K"): np.dtype("u1"), ord("M"): np.dtype("<u2"), ord("J"): np.dtype("<i4")}
#: pickle closes a list after so many elements and goes on with the next ones.
_CHUNK = 1000
_HEAD = bytes((_EMPTY_LIST, _MEMOIZE))
#: What a frame of pickle has at least; the first row has to be in the first one.
_FRAME_BYTES = 64 << 10
#: Of a pickled batch: reading one takes some 10 us beside what its numbers take, and `pickle` is done with a small one by then.
_LEAST_BYTES = 4 << 10
#: A copy of so many bytes takes less than looking at every column of a thousand rows once more.
_JOINED_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class _Field:
    """Numbers at `offset` of a row: runs of floats (offset, count), which are a list or neighbours, one byte, or an integer."""

    offset: int
    kind: np.dtype[Any] | None
    runs: tuple[tuple[int, int], ...] = ()
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class _Template:
    """The first row: where numbers are, and which bytes are at all other places. Rows of later batches mostly are like it, too."""

    size: int
    fields: tuple[_Field, ...]
    is_tuple: bool
    #: Of the columns' values: NumPy would make floats of the integers in a column where another batch has floats.
    types: tuple[type, ...]
    places: Array
    expected: Array

    @classmethod
    def of(cls, row: Array, fields: Sequence[_Field], *, is_tuple: bool) -> _Template:
        """The template that the bytes of this row are."""
        fixed = np.ones(len(row), np.bool_)
        for field in fields:
            if field.kind == np.bool_:
                fixed[field.offset] = False
            elif field.kind is not None:
                fixed[field.offset + 1 : field.offset + 1 + field.kind.itemsize] = False
            for offset, count in field.runs:
                fixed[offset : offset + count * _FLOAT_BYTES] = False
        types: list[type] = []
        for field in fields:
            of_one = float if field.kind is None else bool if field.kind == np.bool_ else int
            types += [of_one] * (1 if field.is_list or not field.runs else field.runs[0][1])
        places = np.flatnonzero(fixed)
        return cls(
            size=len(row),
            fields=tuple(fields),
            is_tuple=is_tuple,
            types=tuple(types),
            places=places,
            expected=row[places],
        )


def pickled_numbers(payload: Any, *, least_bytes: int = _LEAST_BYTES) -> NumbersBlock | None:
    """The rows of a RAW_PICKLE payload (batches with their lengths), or None when they are of another kind.

    Args:
        least_bytes: batches that are smaller, on an average, are not looked at.
    """
    batches = batches_of(payload)
    if not batches or len(memoryview(payload)) < least_bytes * len(batches):
        return None
    found: list[list[Array]] = []
    template: _Template | None = None
    for batch in batches:
        read = _batch(batch, template)
        if read is None or (template is not None and (template.is_tuple, template.types) != (read[0].is_tuple, read[0].types)):
            return None
        template = read[0]
        found.append(read[1])
    if template is None:
        return None
    try:
        columns = _joined(found)
    except ValueError:
        # Lists of another length in another batch.
        return None
    return NumbersBlock(Form(template.is_tuple, tuple("numbers" for _ in columns)), tuple(columns), len(columns[0]))


def batches_of(payload: Any) -> list[Array]:
    """The pickled batches of a RAW_PICKLE payload, as views of its bytes."""
    data = np.frombuffer(payload, np.uint8)
    batches = []
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("!I", memoryview(payload), position)
        batches.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return batches


def _batch(data: Array, known: _Template | None) -> tuple[_Template, list[Array]] | None:
    """What the rows of a batch are like, and its columns; the first row is looked at where they are not as `known` already."""
    frames = _frames(data)
    if not frames:
        return None
    first = frames[0]
    if bytes(first[:2]) != _HEAD or len(first) < 4:
        return None
    stream: Array | None = None
    for template in _templates(first, known):
        if stream is None:
            stream = first if len(frames) == 1 else np.concatenate(frames)
        columns = _read(stream, template)
        if columns is not None:
            return template, columns
    return None


def _templates(first: Array, known: _Template | None) -> Iterator[_Template]:
    """What rows may be like: as those before, or as the first one here."""
    if known is not None:
        yield known
    # Several rows stand behind a mark of their list; a single one has none, but it may begin with one of its own.
    for start in (3, 2) if first[2] == _MARK else (2,):
        template = _first_row(first, start)
        if template is not None:
            yield template


def _read(stream: Array, template: _Template) -> list[Array] | None:
    """The columns of a list of rows, all of which have to be like the template."""
    pieces = _pieces(stream, template.size)
    if pieces is None:
        return None
    if len(pieces) > 1 and len(stream) <= _JOINED_BYTES:
        pieces = [np.concatenate(pieces)]
    found = []
    for piece in pieces:
        columns = _columns(piece, template)
        if columns is None:
            return None
        found.append(columns)
    return _joined(found)


def _joined(parts: Sequence[list[Array]]) -> list[Array]:
    """The columns of all parts."""
    return parts[0] if len(parts) == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]


def _frames(data: Array) -> list[Array] | None:
    """The frames of a pickle; None when there is anything else."""
    if len(data) < 2 or data[0] != _PROTOCOL or data[1] not in _PROTOCOLS:
        return None
    frames, position = [], 2
    while position < len(data):
        if data[position] != _FRAME or position + _FLOAT_BYTES > len(data):
            return None
        length = int.from_bytes(data[position + 1 : position + 9].tobytes(), "little")
        position += 9
        frames.append(data[position : position + length])
        position += length
    return frames if position == len(data) and frames else None


def _first_row(data: Array, start: int) -> _Template | None:
    """Where the numbers of the row at `start` are."""
    view = memoryview(data[: start + _FRAME_BYTES].tobytes())
    many = start < len(view) and view[start] == _MARK
    position = start + many
    fields: list[_Field] = []
    ends: list[int] = []
    while position + 1 < len(view):
        if many and view[position] == _TUPLE:
            return _template(fields, start, position + 1, view)
        if not many and fields and view[position] == _TUPLES[len(fields) - 1]:
            return _template(fields, start, position + 1, view)
        if not many and len(fields) == len(_TUPLES):
            break
        read = _value(view, position, start)
        if read is None:
            break
        fields.append(read[0])
        position = read[1]
        ends.append(position)
    if many or not fields:
        return None
    # No tuple: every value is a row.
    return _Template.of(data[start : ends[0]], fields[:1], is_tuple=False)


def _template(fields: Sequence[_Field], start: int, end: int, view: memoryview) -> _Template | None:
    if not fields or end >= len(view) or view[end] != _MEMOIZE:
        return None
    return _Template.of(np.frombuffer(view[start : end + 1], np.uint8), tuple(_neighbours(fields)), is_tuple=True)


def _neighbours(fields: Sequence[_Field]) -> Iterator[_Field]:
    """The fields, single floats that follow each other taken for one: NumPy needs as long for one column as for ten."""
    group: _Field | None = None
    for field in fields:
        if field.is_list or not field.runs:
            yield from () if group is None else (group,)
            group = None
            yield field
        elif group is None:
            group = field
        else:
            ((offset, count),) = group.runs
            group = _Field(offset, None, ((offset, count + 1),))
    yield from () if group is None else (group,)


def _value(view: memoryview, position: int, start: int) -> tuple[_Field, int] | None:
    """The number, or list of floats, at `position`, and where the next one is."""
    code = view[position]
    offset = position - start
    if code == _FLOAT:
        return _Field(offset, None, ((offset, 1),)), position + _FLOAT_BYTES
    if code in (_TRUE, _FALSE):
        return _Field(offset, np.dtype(np.bool_)), position + 1
    if code in _INTEGERS:
        return _Field(offset, _INTEGERS[code]), position + 1 + _INTEGERS[code].itemsize
    if code != _EMPTY_LIST or bytes(view[position : position + 3]) != _HEAD + bytes((_MARK,)):
        return None
    runs = []
    position += 2
    while position < len(view) and view[position] == _MARK:
        position += 1
        tags = np.frombuffer(view[position:], np.uint8)[::_FLOAT_BYTES][: _CHUNK + 1] != _FLOAT
        count = int(tags.argmax())
        runs.append((position - start, count))
        position += count * _FLOAT_BYTES
        if not count or position >= len(view) or view[position] != _APPENDS:
            return None
        position += 1
    return _Field(offset, None, tuple(runs), is_list=True), position


def _pieces(stream: Array, size: int) -> list[Array] | None:
    """The rows of a list, in matrices of at most 1,000 rows of `size` bytes; None when the bytes do not divide so."""
    if stream[-1] != _STOP:
        return None
    body = stream[2:-1]
    if len(body) == size + 1:
        return [body[:-1].reshape(1, size)] if body[-1] == _APPEND else None
    pieces = []
    while len(body):
        count = min(_CHUNK, (len(body) - 2) // size)
        end = count * size + 1
        if count < 1 or body[0] != _MARK or body[end] != _APPENDS:
            return None
        pieces.append(body[1:end].reshape(count, size))
        body = body[end + 1 :]
    return pieces or None


def _columns(rows: Array, template: _Template) -> list[Array] | None:
    """The numbers of some rows; None when one differs from the template in anything else."""
    columns: list[Array] = []
    for field in template.fields:
        if field.kind == np.bool_:
            codes = rows[:, field.offset]
            if not ((codes == _TRUE) | (codes == _FALSE)).all():
                return None
            columns.append(codes == _TRUE)
        elif field.kind is not None:
            columns.append(_strided(rows, field.offset + 1, 1, field.kind).reshape(-1))
        else:
            parts = []
            for offset, count in field.runs:
                if not (_strided(rows, offset, count, np.dtype("u1")) == _FLOAT).all():
                    return None
                values: Array = np.ndarray((len(rows), count), ">f8", rows, offset + 1, (template.size, _FLOAT_BYTES))
                parts += [values.astype(np.float64)] if field.is_list else list(values.T.astype(np.float64, order="C"))
            if field.is_list:
                columns.append(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
            else:
                columns += parts
    return columns if (rows[:, template.places] == template.expected).all() else None


def _strided(rows: Array, offset: int, count: int, kind: np.dtype[Any]) -> Array:
    """A copy of `count` values of each row, one every nine bytes."""
    shape = (len(rows), count)
    strides = (rows.strides[0], _FLOAT_BYTES)
    view: Array = np.ndarray(shape, kind, rows, offset, strides)
    return np.ascontiguousarray(view)
