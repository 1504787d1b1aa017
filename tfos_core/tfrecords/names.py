"""Finds the columns of features by their names, for all features of a block at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfos_core.tfrecords.parse import Slots
from tfos_core.tfrecords.ranges import Bytes, Ints, unaligned

__all__ = ("NameTable",)

Words = NDArray[np.uint64]
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


@dataclass(frozen=True, slots=True)
class _SameSize:
    """Names of one size: numbers of their columns, their bytes as words, and hashes, all sorted by hash."""

    columns: Ints
    words: Words
    hashes: Words
    multiplier: np.uint64


class NameTable:
    """Names, and the number of each."""

    def __init__(self, names: Sequence[str]) -> None:
        by_size: dict[int, list[tuple[int, bytes]]] = {}
        for number, name in enumerate(names):
            by_size.setdefault(len(name.encode()), []).append((number, name.encode()))
        self._by_size = {size: _same_size(members, size) for size, members in by_size.items()}

    def find(self, buffer: Bytes, slots: Slots) -> Ints:
        """The number of the name of each slot, -1 where it is none of ours."""
        found = np.full(len(slots.records), -1, dtype=np.int64)
        sizes = slots.name_sizes
        for size, table in self._by_size.items():
            members = np.flatnonzero(sizes == size)
            if len(members) == 0:
                continue
            words = _words(buffer, slots.name_starts[members], size)
            if len(table.columns) == 1:
                index = np.zeros(len(members), dtype=np.intp)
            else:
                index = np.searchsorted(table.hashes, _hash(words, table.multiplier))
                index[index == len(table.columns)] = 0
            same = np.ones(len(members), dtype=np.bool_)
            for column, word in zip(table.words, words, strict=True):
                same &= column[index] == word
            found[members] = np.where(same, table.columns[index], -1)
        return found


def _same_size(members: list[tuple[int, bytes]], size: int) -> _SameSize:
    columns = np.array([number for number, _ in members], dtype=np.int64)
    buffer = np.frombuffer(b"".join(name for _, name in members) + bytes(8), dtype=np.uint8)
    words = _words(buffer, np.arange(len(members), dtype=np.int64) * size, size)
    # Two of our own names with one hash: as good as impossible, and another multiplier tells them apart.
    multiplier = next((m for m in _MULTIPLIERS if len(np.unique(_hash(words, np.uint64(m)))) == len(members)), _MULTIPLIERS[0])
    hashes = _hash(words, np.uint64(multiplier))
    order = np.argsort(hashes)
    return _SameSize(columns[order], words[:, order], hashes[order], np.uint64(multiplier))


def _words(buffer: Bytes, starts: Ints, size: int) -> Words:
    """Names as rows of eight bytes each; the last one overlaps the one before it, a name below eight bytes is filled with zeros."""
    numbers = unaligned(buffer, "<u8")
    if size < 8:
        mask = np.uint64((1 << (8 * size)) - 1)
        return (numbers[starts] & mask)[None, :]
    places = [*range(0, size - 7, 8), *([size - 8] if size % 8 else [])]
    return np.stack([numbers[starts + place] for place in places])


def _hash(words: Words, multiplier: np.uint64) -> Words:
    state = np.zeros(words.shape[1], dtype=np.uint64)
    for word in words:
        state = (state ^ word) * multiplier
        state ^= state >> np.uint64(29)
    return state
