"""Repeated length-delimited fields: bytes values of a list, steps of a feature list; element k of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfos_core.tfrecords.messages import FIRST
from tfos_core.tfrecords.ranges import Bytes, Ints, offsets_of
from tfos_core.tfrecords.varints import read_lengths

__all__ = ("Elements", "delimited", "read_elements")


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
    count = len(starts)
    counts = np.zeros(count, dtype=np.int64)
    bad = np.zeros(count, dtype=np.bool_)
    steps: list[tuple[Ints, Ints, Ints]] = []
    active = np.arange(count, dtype=np.int64)
    places, ends = starts, starts + sizes
    while True:
        inside = places < ends
        if not inside.all():
            active, places, ends = active[inside], places[inside], ends[inside]
        if len(active) == 0:
            break
        inner, inner_sizes = delimited(buffer, places)
        good = (buffer[places] == FIRST) & (inner + inner_sizes <= ends)
        if not good.all():
            bad[active[~good]] = True
            active, ends, inner, inner_sizes = active[good], ends[good], inner[good], inner_sizes[good]
        counts[active] += 1
        steps.append((active, inner, inner_sizes))
        places = inner + inner_sizes
    element_starts, element_sizes = _in_order(steps, counts)
    if bad.any():
        kept = ~np.repeat(bad, counts)
        element_starts, element_sizes = element_starts[kept], element_sizes[kept]
        counts[bad] = 0
    return Elements(starts=element_starts, sizes=element_sizes, counts=counts, bad=bad)


def _in_order(steps: list[tuple[Ints, Ints, Ints]], counts: Ints) -> tuple[Ints, Ints]:
    if len(steps) == 1 and len(steps[0][0]) == len(counts):
        return steps[0][1], steps[0][2]
    offsets = offsets_of(counts)
    starts, sizes = np.empty(int(offsets[-1]), dtype=np.int64), np.empty(int(offsets[-1]), dtype=np.int64)
    for number, (active, step_starts, step_sizes) in enumerate(steps):
        places = offsets[active] + number
        starts[places], sizes[places] = step_starts, step_sizes
    return starts, sizes
