"""Payload ranges to values, all of one column at once, and wire values to Arrow values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfos_core.tfrecords import varints
from tfos_core.tfrecords.elements import read_elements
from tfos_core.tfrecords.fields import Field, Kind
from tfos_core.tfrecords.parse import Features
from tfos_core.tfrecords.ranges import Bytes, Ints, gather, unaligned

__all__ = ("Values", "convert", "read_values")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values of features one after the other (an Arrow array of int64, float or binary), how many each feature has, and which
    features could not be read (they have none).
    """

    flat: Any
    counts: Ints
    bad: Flags


def read_values(buffer: Bytes, features: Features, kind: Kind) -> Values:
    """The values of features of one kind, or without a list."""
    match kind:
        case Kind.FLOAT:
            return _floats(buffer, features)
        case Kind.INT64:
            return _ints(buffer, features)
        case _:
            return _bytes(buffer, features)


def convert(flat: Any, field: Field) -> tuple[Any, Flags]:
    """Wire values as the column's type, null where that is impossible, and where that was."""
    try:
        return _converted(flat, field), np.zeros(len(flat), dtype=np.bool_)
    except pa.ArrowInvalid:
        # Few values are wrong: halve until each stands alone.
        parts = list(_converted_in_parts(flat, field))
        return pa.concat_arrays([array for array, _ in parts]), np.concatenate([bad for _, bad in parts])


def _floats(buffer: Bytes, features: Features) -> Values:
    bad = features.sizes % 4 != 0
    sizes = np.where(bad, 0, features.sizes) if bad.any() else features.sizes
    if len(sizes) and int(sizes.min()) == int(sizes.max()) == 4:
        numbers = unaligned(buffer, "<f4")[features.starts]
    else:
        numbers = gather(buffer, features.starts, sizes)[0].view("<f4")
    return Values(flat=pa.array(numbers), counts=sizes // 4, bad=bad)


def _ints(buffer: Bytes, features: Features) -> Values:
    sizes = features.sizes
    filled = sizes > 0
    bad = np.zeros(len(sizes), dtype=np.bool_)
    # The last byte of a list ends a number; otherwise numbers would run from one record into the next.
    bad[filled] = buffer[(features.starts + sizes - 1)[filled]] > 0x7F
    if bad.any():
        sizes = np.where(bad, 0, sizes)
    stream, offsets = gather(buffer, features.starts, sizes)
    values, ended = varints.decode(stream)
    return Values(flat=pa.array(values), counts=np.diff(ended[offsets]), bad=bad)


def _bytes(buffer: Bytes, features: Features) -> Values:
    elements = read_elements(buffer, features.starts, features.sizes)
    return Values(flat=_binary(buffer, elements.starts, elements.sizes), counts=elements.counts, bad=elements.bad)


def _binary(buffer: Bytes, starts: Ints, sizes: Ints) -> Any:
    data, offsets = gather(buffer, starts, sizes)
    if int(offsets[-1]) > np.iinfo(np.int32).max:
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.BinaryArray.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)])


def _converted(flat: Any, field: Field) -> Any:
    leaf = field.leaf
    if flat.type == leaf:
        return flat
    if field.kind is Kind.BYTES:
        if pa.types.is_binary(leaf) or pa.types.is_large_binary(leaf):
            return flat.cast(leaf)
        text = flat.cast(pa.large_string() if pa.types.is_large_binary(flat.type) else pa.string())
        return text if text.type == leaf else text.cast(leaf)
    if field.kind is Kind.FLOAT:
        return flat.cast(leaf, safe=False)
    if pa.types.is_boolean(leaf):
        return pc.not_equal(flat, 0)
    if pa.types.is_date32(leaf):
        return flat.cast(pa.int32()).cast(leaf)
    if pa.types.is_timestamp(leaf):
        return flat.cast(pa.timestamp("us", leaf.tz)).cast(leaf)
    return flat.cast(leaf)


def _converted_in_parts(flat: Any, field: Field) -> Iterator[tuple[Any, Flags]]:
    try:
        yield _converted(flat, field), np.zeros(len(flat), dtype=np.bool_)
    except pa.ArrowInvalid:
        if len(flat) == 1:
            yield pa.nulls(1, field.leaf), np.ones(1, dtype=np.bool_)
            return
        half = len(flat) // 2
        yield from _converted_in_parts(flat.slice(0, half), field)
        yield from _converted_in_parts(flat.slice(half), field)
