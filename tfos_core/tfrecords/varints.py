"""Protobuf's variable-length integers, many at once."""

from __future__ import annotations

import numpy as np

from tfos_core.tfrecords.ranges import Bytes, Ints, offsets_of

__all__ = ("MAX_BYTES", "decode", "encode", "read_lengths", "varint")

MAX_BYTES = 10


def varint(value: int) -> bytes:
    """One number, at least 0."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode(values: Ints) -> tuple[Bytes, Ints]:
    """The numbers one after the other, and how many bytes each takes; a negative one takes ten."""
    unsigned = values.view(np.uint64)
    highest = int(unsigned.max()) if len(unsigned) else 0
    if highest < 0x80:
        return unsigned.astype(np.uint8), np.ones(len(values), dtype=np.int64)
    sizes = np.ones(len(values), dtype=np.int64)
    for step in range(1, (highest.bit_length() + 6) // 7):
        sizes += unsigned >= np.uint64(1 << (7 * step))
    starts = offsets_of(sizes)
    stream = np.empty(int(starts[-1]), dtype=np.uint8)
    places, rest = starts[:-1], unsigned
    for step in range(int(sizes.max())):
        if step:
            longer = np.flatnonzero(sizes > step)
            places, rest = starts[longer] + step, unsigned[longer] >> np.uint64(7 * step)
        low = rest.astype(np.uint8)
        stream[places] = np.where(rest > 0x7F, low | 0x80, low)
    return stream, sizes


def decode(stream: Bytes) -> tuple[Ints, Ints]:
    """All numbers of a stream, and for every byte how many numbers have ended before it (one entry more, for the end).

    A number longer than ten bytes loses its upper bits; one that does not end is left out. `ends_cleanly` of the caller finds both.
    """
    last = stream < 0x80
    ended = offsets_of(last)  # type: ignore[arg-type]
    if last.all():
        return stream.astype(np.int64), ended
    ends = np.flatnonzero(last)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    sizes = ends - starts + 1
    values = np.zeros(len(ends), dtype=np.uint64)
    chosen = np.arange(len(ends))
    for step in range(min(int(sizes.max(initial=0)), MAX_BYTES)):
        if step:
            chosen = chosen[sizes[chosen] > step]
        values[chosen] |= (stream[starts[chosen] + step] & np.uint64(0x7F)).astype(np.uint64) << np.uint64(7 * step)
    return values.view(np.int64), ended


def read_lengths(buffer: Bytes, places: Ints) -> tuple[Ints, Ints]:
    """The numbers at these places, below 2^35, and the places after them; -1 for one that is longer than five bytes.

    The buffer has at least five bytes after every place.
    """
    first = buffer[places]
    values = first.astype(np.int64)
    after = places + 1
    longer = np.flatnonzero(first > 0x7F)
    if len(longer) == 0:
        return values, after
    values[longer] &= 0x7F
    for step in range(1, 5):
        part = buffer[places[longer] + step]
        values[longer] |= (part & 0x7F).astype(np.int64) << (7 * step)
        after[longer] += 1
        longer = longer[part > 0x7F]
        if len(longer) == 0:
            return values, after
    values[longer] = -1
    return values, after
