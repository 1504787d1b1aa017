"""Repeated length-delimited fields: bytes values of a list, steps of a feature list; element k of all lists at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfos_core.tfrecords.messages import FIRST
from tfos_core.tfrecords.ranges import Bytes, Ints, offsets_of
from tfos_core.tfrecords.varints import read_lengths

__all__ = ("Elements", "delimited", "read_elements")


#: With fewer lists than this left, a loop over their elements is faster than lockstep (10 us a step, however few lists there are).
_FEW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Ranges of all elements in the order of their owners, how many each owner has, and owners that could not be read (none)."""

    starts: Ints
    sizes: Ints
    counts: Ints
    bad: NDArray[np.bool_]


def delimited(buffer: Bytes, places: Ints) -> tuple[Ints, Ints]:
    """Where the content of length-delimited fields starts, and its size; an impossible size reaches far beyond the buffer."""
    sizes, starts = read_lengths(buffer, places + 1)
    wrong = sizes < 0
    if wrong.any():
        sizes[wrong] = np.int64(1) << 40
    return starts, sizes


def read_elements(buffer: Bytes, starts: Ints, sizes: Ints) -> Elements:
    """The elements in these ranges."""
    counts = np.zeros(len(starts), dtype=np.int64)
    bad = np.zeros(len(starts), dtype=np.bool_)
    steps: list[_Step] = []
    active = np.arange(len(starts), dtype=np.int64)
    places, ends = starts, starts + sizes
    while True:
        inside = places < ends
        if not inside.all():
            active, places, ends = active[inside], places[inside], ends[inside]
        if len(active) <= _FEW:
            break
        inner, inner_sizes = delimited(buffer, places)
        good = (buffer[places] == FIRST) & (inner + inner_sizes <= ends)
        if not good.all():
            bad[active[~good]] = True
            active, ends, inner, inner_sizes = active[good], ends[good], inner[good], inner_sizes[good]
        steps.append(_Step(active, counts[active], inner, inner_sizes))
        counts[active] += 1
        places = inner + inner_sizes
    for owner, place, end in zip(active.tolist(), places.tolist(), ends.tolist(), strict=True):
        step, whole = _long_list(buffer, owner, int(counts[owner]), place, end)
        steps.append(step)
        counts[owner] += len(step.starts)
        bad[owner] = not whole
    element_starts, element_sizes = _in_order(steps, counts)
    if bad.any():
        kept = ~np.repeat(bad, counts)
        element_starts, element_sizes = element_starts[kept], element_sizes[kept]
        counts[bad] = 0
    return Elements(starts=element_starts, sizes=element_sizes, counts=counts, bad=bad)


@dataclass(frozen=True, slots=True)
class _Step:
    """Some elements: whose they are, which of their owner's (from 0), and their ranges."""

    owners: Ints
    numbers: Ints
    starts: Ints
    sizes: Ints


def _long_list(buffer: Bytes, owner: int, number: int, place: int, end: int) -> tuple[_Step, bool]:
    """The rest of one owner's elements, one by one, and whether that worked out: lockstep does not pay for a few long lists."""
    data = buffer[place:end].tobytes()
    starts: list[int] = []
    sizes: list[int] = []
    position, length = 0, len(data)
    whole = True
    while position < length:
        size, shift, start = 0, 0, position + 1
        while start < length and data[start] > 0x7F and shift < 28:
            size |= (data[start] & 0x7F) << shift
            shift += 7
            start += 1
        if data[position] != FIRST or start >= length or data[start] > 0x7F:
            whole = False
            break
        size |= data[start] << shift
        position = start + 1 + size
        if position > length:
            whole = False
            break
        starts.append(place + start + 1)
        sizes.append(size)
    count = len(starts)
    return _Step(
        np.full(count, owner), np.arange(number, number + count), np.array(starts, np.int64), np.array(sizes, np.int64)
    ), whole


def _in_order(steps: list[_Step], counts: Ints) -> tuple[Ints, Ints]:
    if len(steps) == 1 and len(steps[0].owners) == len(counts):
        return steps[0].starts, steps[0].sizes
    offsets = offsets_of(counts)
    starts, sizes = np.empty(int(offsets[-1]), dtype=np.int64), np.empty(int(offsets[-1]), dtype=np.int64)
    for step in steps:
        places = offsets[step.owners] + step.numbers
        starts[places], sizes[places] = step.starts, step.sizes
    return starts, sizes
