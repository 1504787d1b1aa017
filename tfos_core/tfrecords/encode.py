"""Arrow record batches to framed TFRecords, a column at a time; pure.

Every column becomes one payload range for each row. All that stands around a payload depends on its size only, so it is made once
for each size that occurs. Then every row's place in the output is known, and headers and payloads are copied there, a column at a
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tfos_core.errors import ConfigError
from tfos_core.tfrecords import varints
from tfos_core.tfrecords.crc32c import LANE_BYTES, masked_crc32c
from tfos_core.tfrecords.fields import Field, Kind, RecordType, to_wire
from tfos_core.tfrecords.messages import FIRST, SECOND, EntryHead, FeatureHead, StepHead, bytes_value, group_head
from tfos_core.tfrecords.ranges import Bytes, Ints, Pieces, copy_ranges, offsets_of, tabulate

__all__ = ("FOOTER_BYTES", "HEADER_BYTES", "Frames", "encode", "encode_in_parts")

#: Length and its checksum before a record, the record's checksum after it.
HEADER_BYTES = 12
FOOTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Framed records: `data` goes into a file as it is; records start at `starts` of it and have `sizes` bytes."""

    data: Bytes
    starts: Ints
    sizes: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column's payloads and what comes before them; `rows` names the rows that have one, None for all."""

    payload: Pieces
    head: Pieces
    rows: Ints | None

    def sizes(self, count: int) -> Ints:
        total = self.payload.sizes + self.head.sizes
        if self.rows is None:
            return total
        sizes = np.zeros(count, dtype=np.int64)
        sizes[self.rows] = total
        return sizes

    def write(self, target: Bytes, places: Ints) -> None:
        mine = places if self.rows is None else places[self.rows]
        copy_ranges(self.head, target, mine)
        copy_ranges(self.payload, target, mine + self.head.sizes)


@dataclass(frozen=True, slots=True)
class _Constant:
    tag: int

    def __call__(self, size: int) -> bytes:
        return group_head(self.tag, size)


def encode_in_parts(
    batch: Any, fields: Sequence[Field], record_type: RecordType = RecordType.EXAMPLE, *, part_bytes: int = 2 << 20
) -> Iterator[Frames]:
    """`encode` of a batch in slices of about `part_bytes` of Arrow data, so that memory stays bounded and in cache."""
    rows = max(1, int(batch.num_rows * part_bytes / max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield encode(batch.slice(start, rows), fields, record_type)


def encode(batch: Any, fields: Sequence[Field], record_type: RecordType = RecordType.EXAMPLE) -> Frames:
    """The rows of `batch`, whose columns are `fields` in this order, as framed records.

    Raises:
        ConfigError: a null inside an array, or a number that a 32-bit float can not hold.
    """
    count = batch.num_rows
    columns = [_column(batch.column(i), field) for i, field in enumerate(fields)]
    if record_type is RecordType.BYTE_ARRAY:
        return _framed(count, [_only(columns[0], fields[0], count)])
    groups = [[c for c, f in zip(columns, fields, strict=True) if f.depth < 2]]
    if record_type is RecordType.SEQUENCE_EXAMPLE:
        groups.append([c for c, f in zip(columns, fields, strict=True) if f.depth == 2])
    parts: list[_Column] = []
    for tag, group in zip((FIRST, SECOND), groups, strict=False):
        size = sum((column.sizes(count) for column in group), np.zeros(count, dtype=np.int64))
        nothing = Pieces(source=np.empty(0, np.uint8), starts=np.zeros(count, np.int64), sizes=np.zeros(count, np.int64))
        parts.append(_Column(payload=nothing, head=tabulate(size, _Constant(tag)), rows=None))
        parts.extend(group)
    return _framed(count, parts)


def _only(column: _Column, field: Field, count: int) -> _Column:
    if column.rows is not None:
        raise ConfigError(f"column {field.name!r} has a null, and a ByteArray record can not be absent", "Drop these rows first.")
    nothing = Pieces(source=np.empty(0, np.uint8), starts=np.zeros(count, np.int64), sizes=np.zeros(count, np.int64))
    return _Column(payload=column.payload, head=nothing, rows=None)


def _framed(count: int, columns: Sequence[_Column]) -> Frames:
    row_sizes = [column.sizes(count) for column in columns]
    sizes = sum(row_sizes, np.zeros(count, dtype=np.int64))
    offsets = offsets_of(sizes + (HEADER_BYTES + FOOTER_BYTES))
    # The checksums want some bytes before the first record.
    buffer = np.empty(LANE_BYTES + int(offsets[-1]), dtype=np.uint8)
    buffer[:LANE_BYTES] = 0
    frames = offsets[:-1] + LANE_BYTES
    places = frames + HEADER_BYTES
    copy_ranges(_headers(sizes), buffer, frames)
    for column, size in zip(columns, row_sizes, strict=True):
        column.write(buffer, places)
        places = places + size
    starts = frames + HEADER_BYTES
    checksums = masked_crc32c(buffer, starts, sizes).astype("<u4").view(np.uint8)
    each = np.arange(count, dtype=np.int64) * FOOTER_BYTES
    copy_ranges(Pieces(source=checksums, starts=each, sizes=np.full(count, FOOTER_BYTES)), buffer, places)
    return Frames(data=buffer[LANE_BYTES:], starts=offsets[:-1] + HEADER_BYTES, sizes=sizes)


def _headers(sizes: Ints) -> Pieces:
    count = len(sizes)
    headers = np.empty((count, HEADER_BYTES), dtype=np.uint8)
    headers[:, :8] = sizes.astype("<u8").view(np.uint8).reshape(count, 8)
    starts = np.arange(count, dtype=np.int64) * HEADER_BYTES
    checksums = masked_crc32c(headers.reshape(-1), starts, np.full(count, 8))
    headers[:, 8:] = checksums.astype("<u4").view(np.uint8).reshape(count, 4)
    return Pieces(source=headers.reshape(-1), starts=starts, sizes=np.full(count, HEADER_BYTES))


def _column(array: Any, field: Field) -> _Column:
    rows: Ints | None = None
    if array.null_count:
        valid = array.is_valid()
        rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)
        array = array.filter(valid)
    name = field.name.encode()
    if field.depth == 0:
        wire = to_wire(array, field)
        payload = _packed(wire, np.arange(len(wire) + 1, dtype=np.int64), field.kind, single=True)
        head: Callable[[int], bytes] = FeatureHead(name, field.kind, single=True)
    elif field.depth == 1:
        payload, head = _lists(array, field), FeatureHead(name, field.kind, single=False)
    else:
        payload, head = _feature_lists(array, field), EntryHead(name)
    return _Column(payload=payload, head=tabulate(payload.sizes, head), rows=rows)


def _lists(array: Any, field: Field) -> Pieces:
    offsets, values = _flat(array, field)
    return _packed(to_wire(values, field), offsets, field.kind, single=False)


def _feature_lists(array: Any, field: Field) -> Pieces:
    """Every row's steps one after the other, each with its head."""
    offsets, inner = _flat(array, field)
    steps = _lists(inner, field)
    return _joined(steps, tabulate(steps.sizes, StepHead(field.kind)), offsets)


def _flat(array: Any, field: Field) -> tuple[Ints, Any]:
    """Offsets of rows among the elements, and the elements, of a list array without null rows."""
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    values = array.flatten()
    if values.null_count:
        raise ConfigError(
            f"column {field.name!r} has a null inside an array, which a TFRecord can not hold",
            "Replace it, or remove it with filter(column, x -> x IS NOT NULL).",
        )
    return offsets_of(lengths), values


def _packed(wire: Any, offsets: Ints, kind: Kind, *, single: bool) -> Pieces:
    """The payload of each row: `offsets` are its values."""
    if kind is Kind.BYTES:
        starts, source = _binary(wire)
        values = Pieces(source=source, starts=starts[:-1], sizes=np.diff(starts))
        return values if single else _joined(values, tabulate(values.sizes, bytes_value), offsets)
    numbers = wire.to_numpy(zero_copy_only=False)
    if kind is Kind.FLOAT:
        source = np.ascontiguousarray(numbers, dtype="<f4").view(np.uint8)
        return Pieces(source=source, starts=offsets[:-1] * 4, sizes=np.diff(offsets) * 4)
    source, sizes = varints.encode(np.ascontiguousarray(numbers, dtype=np.int64))
    ends = offsets_of(sizes)[offsets]
    return Pieces(source=source, starts=ends[:-1], sizes=np.diff(ends))


def _joined(values: Pieces, heads: Pieces, offsets: Ints) -> Pieces:
    """One range for each row: its values (`offsets`), each after its head."""
    places = offsets_of(values.sizes + heads.sizes)
    stream = np.empty(int(places[-1]), dtype=np.uint8)
    copy_ranges(heads, stream, places[:-1])
    copy_ranges(values, stream, places[:-1] + heads.sizes)
    ends = places[offsets]
    return Pieces(source=stream, starts=ends[:-1], sizes=np.diff(ends))


def _binary(array: Any) -> tuple[Ints, Bytes]:
    """Offsets and bytes of a string or binary array."""
    _, offsets, data = array.buffers()
    if offsets is None:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    starts = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    if data is None or data.size == 0:
        return starts, np.empty(0, dtype=np.uint8)
    return starts, np.frombuffer(data, dtype=np.uint8)
