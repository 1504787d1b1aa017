"""Blocks of records to Arrow columns; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_core.tfrecords.columns import ColumnReader, Rejected
from tfos_core.tfrecords.encode import HEADER_BYTES
from tfos_core.tfrecords.fields import Field, RecordType
from tfos_core.tfrecords.framing import Block, Problem
from tfos_core.tfrecords.names import NameTable
from tfos_core.tfrecords.parse import parse
from tfos_core.tfrecords.ranges import Ints, gather

__all__ = ("Decoded", "Decoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The columns of a block's usable records, where their frames start in the file, and the records that are not among them."""

    columns: tuple[Any, ...]
    offsets: Ints
    problems: tuple[Problem, ...]


class Decoder:
    """Decodes blocks into columns that are `fields`; features of other names are ignored."""

    def __init__(self, fields: Sequence[Field], record_type: RecordType = RecordType.EXAMPLE) -> None:
        self._fields = tuple(fields)
        self._type = record_type
        self._names = NameTable([each.name for each in fields])

    def decode(self, block: Block) -> Decoded:
        """The columns of this block; records that do not fit are left out and named, with those that the block itself names."""
        frames = block.starts - HEADER_BYTES + block.base
        if self._type is RecordType.BYTE_ARRAY:
            return Decoded(columns=(_whole_records(block, self._fields[0]),), offsets=frames, problems=block.problems)
        parsed = parse(block, sequence=self._type is RecordType.SEQUENCE_EXAMPLE)
        rejected = Rejected(dict(parsed.malformed))
        found = _grouped(self._names.find(parsed.buffer, parsed.slots), len(self._fields))
        found_lists = _grouped(self._names.find(parsed.buffer, parsed.list_slots), len(self._fields))
        columns = tuple(
            ColumnReader(each, len(frames), parsed, rejected).read(slots, lists)
            for each, slots, lists in zip(self._fields, found, found_lists, strict=True)
        )
        if not rejected.reasons:
            return Decoded(columns=columns, offsets=frames, problems=block.problems)
        kept = np.ones(len(frames), dtype=np.bool_)
        kept[list(rejected.reasons)] = False
        problems = [Problem(offset=int(frames[record]), reason=reason) for record, reason in rejected.reasons.items()]
        return Decoded(
            columns=tuple(column.filter(pa.array(kept)) for column in columns),
            offsets=frames[kept],
            problems=tuple(sorted((*block.problems, *problems), key=_place)),
        )


def _place(problem: Problem) -> int:
    return problem.offset


def _whole_records(block: Block, each: Field) -> Any:
    data, offsets = gather(block.buffer, block.starts, block.sizes)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(block.sizes), buffers).cast(each.type)


def _grouped(numbers: Ints, count: int) -> list[Ints]:
    """For each column, the positions where its number stands, ascending."""
    if count <= 8:
        return [np.flatnonzero(numbers == number) for number in range(count)]
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return [order[bounds[number] : bounds[number + 1]] for number in range(count)]
