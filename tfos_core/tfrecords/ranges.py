"""Copies of many byte ranges at once, without a loop over them.

A buffer is looked at as an array of overlapping items of k bytes, one for each position (stride 1), so that one fancy index moves k
bytes from or to thousands of positions: about 40 ns for a range of 400 bytes, against 200 ns for a slice assignment in Python.
Ranges of different sizes are copied in groups of one power of two, from both ends, as `memcpy` does with short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ("Bytes", "Ints", "Pieces", "copy_ranges", "fill", "gather", "offsets_of", "tabulate", "unaligned", "window")

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]

#: From this size on a plain slice assignment costs less than the temporary copy of a fancy index.
_LARGE = 16 * 1024
#: From this size on, equally spaced ranges are copied as the rows of one matrix, without the temporary copy of a fancy index.
_ROW = 64
#: Bytes. TensorFlow takes arrays that lie so as they are, and copies others.
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """One byte range of `source` for each row."""

    source: Bytes
    starts: Ints
    sizes: Ints


def window(buffer: Bytes, width: int) -> NDArray[np.void]:
    """`buffer` as overlapping items of `width` bytes, one for each position."""
    return np.ndarray((len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer.data, strides=(1,))


def unaligned(buffer: Bytes, dtype: str) -> NDArray[Any]:
    """`buffer` as numbers that start at every position."""
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(buffer) - width + 1,), dtype=dtype, buffer=buffer.data, strides=(1,))


def offsets_of(sizes: Ints) -> Ints:
    """Where things of these sizes start when they follow each other; one more entry for the end."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def fill(target: Bytes, starts: Ints, piece: bytes) -> None:
    """Write the same bytes at many positions."""
    if len(starts) and piece:
        window(target, len(piece))[starts] = np.frombuffer(piece, dtype=f"V{len(piece)}")[0]


def copy_ranges(pieces: Pieces, target: Bytes, target_starts: Ints) -> None:
    """Copy every piece to its place in `target`; ranges of a target must not overlap."""
    sizes = pieces.sizes
    if len(sizes) == 0:
        return
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        _copy_equal(high, pieces.source, pieces.starts, target, target_starts)
        return
    exponents = np.frexp(sizes)[1]
    for exponent in np.flatnonzero(np.bincount(exponents)):
        if exponent == 0:
            continue
        members = np.flatnonzero(exponents == exponent)
        group = Pieces(source=pieces.source, starts=pieces.starts[members], sizes=sizes[members])
        _copy_similar(1 << (int(exponent) - 1), group, target, target_starts[members])


def gather(source: Bytes, starts: Ints, sizes: Ints) -> tuple[Bytes, Ints]:
    """The ranges one after the other, and where each starts."""
    offsets = offsets_of(sizes)
    together = _aligned(int(offsets[-1]))
    copy_ranges(Pieces(source=source, starts=starts, sizes=sizes), together, offsets[:-1])
    return together, offsets


def _aligned(size: int) -> Bytes:
    buffer = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size]


def tabulate(sizes: Ints, make: Callable[[int], bytes]) -> Pieces:
    """`make(size)` for every row, called once for each size that occurs."""
    if len(sizes) == 0:
        return Pieces(source=np.empty(0, np.uint8), starts=np.empty(0, np.int64), sizes=np.empty(0, np.int64))
    distinct, inverse = _distinct(sizes)
    made = [make(int(size)) for size in distinct]
    lengths = np.array([len(piece) for piece in made], dtype=np.int64)
    starts = offsets_of(lengths)[:-1]
    return Pieces(source=np.frombuffer(b"".join(made), dtype=np.uint8), starts=starts[inverse], sizes=lengths[inverse])


def _distinct(sizes: Ints) -> tuple[Ints, Ints]:
    highest = int(sizes.max())
    if highest > 4 * len(sizes) + 65536:
        distinct, inverse = np.unique(sizes, return_inverse=True)
        return distinct, inverse.astype(np.int64, copy=False)
    # A table over all sizes is about twenty times faster than sorting.
    occurs = np.zeros(highest + 1, dtype=np.bool_)
    occurs[sizes] = True
    distinct = np.flatnonzero(occurs)
    numbers = np.zeros(highest + 1, dtype=np.int64)
    numbers[distinct] = np.arange(len(distinct))
    return distinct, numbers[sizes]


def _copy_similar(width: int, pieces: Pieces, target: Bytes, target_starts: Ints) -> None:
    """Ranges of `width` up to twice `width` bytes: from the start, and from the end, overlapping in the middle."""
    if width >= _LARGE:
        _copy_large(pieces, target, target_starts)
        return
    _copy_equal(width, pieces.source, pieces.starts, target, target_starts)
    rest = pieces.sizes - width
    if rest.any():
        _copy_equal(width, pieces.source, pieces.starts + rest, target, target_starts + rest)


def _copy_equal(width: int, source: Bytes, starts: Ints, target: Bytes, target_starts: Ints) -> None:
    if width == 0:
        return
    if width >= _LARGE:
        _copy_large(Pieces(source=source, starts=starts, sizes=np.full(len(starts), width)), target, target_starts)
        return
    if width >= _ROW:
        rows, places = _rows(source, starts, width), _rows(target, target_starts, width)
        if rows is not None and places is not None:
            np.copyto(places, rows)
            return
    first, last = int(starts[0]), int(starts[-1])
    if last - first == width * (len(starts) - 1) and (np.diff(starts) == width).all():
        # The ranges follow each other, as the values of an array column of equal lengths do: one copy less.
        items = source[first : last + width].view(f"V{width}")
    else:
        items = window(source, width)[starts]
    window(target, width)[target_starts] = items


def _rows(buffer: Bytes, starts: Ints, width: int) -> Bytes | None:
    """Equally spaced ranges as a matrix, a view of `buffer`; None when they are not, or overlap."""
    count, first = len(starts), int(starts[0])
    stride = (int(starts[-1]) - first) // (count - 1) if count > 1 else width
    if stride < width or (np.diff(starts) != stride).any():
        return None
    return np.ndarray((count, width), dtype=np.uint8, buffer=buffer.data, offset=first, strides=(stride, 1))


def _copy_large(pieces: Pieces, target: Bytes, target_starts: Ints) -> None:
    for start, size, place in zip(pieces.starts.tolist(), pieces.sizes.tolist(), target_starts.tolist(), strict=True):
        target[place : place + size] = pieces.source[start : start + size]
