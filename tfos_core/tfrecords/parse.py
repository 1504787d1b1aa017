"""Records to ranges of values, all records of a block in lockstep.

Step k looks at the k-th feature of every record at once. Only the encoding that protobuf's own writers produce is followed; a
record that is encoded otherwise is rewritten by `canonical` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfos_core.tfrecords.canonical import MalformedError, canonical
from tfos_core.tfrecords.elements import delimited, read_elements
from tfos_core.tfrecords.fields import Kind
from tfos_core.tfrecords.framing import TAIL_BYTES, Block
from tfos_core.tfrecords.messages import FIRST, SECOND
from tfos_core.tfrecords.ranges import Bytes, Ints

__all__ = ("Features", "Parsed", "Slots", "Steps", "parse")

Flags = NDArray[np.bool_]
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Map entries of all records: whose they are, and the ranges of their names and values."""

    records: Ints
    name_starts: Ints
    name_sizes: Ints
    starts: Ints
    sizes: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Features, each with its kind and the range of its payload: packed numbers, or encoded bytes values."""

    kinds: NDArray[np.uint8]
    starts: Ints
    sizes: Ints

    def take(self, chosen: Ints | slice) -> Features:
        """Some of them."""
        return Features(kinds=self.kinds[chosen], starts=self.starts[chosen], sizes=self.sizes[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The features of all feature lists, one list after the other, and how many each list has."""

    counts: Ints
    features: Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The entries of a block's records, with one member of `features` for each of `slots`, and one count of `steps` for each of
    `list_slots`; `malformed` tells for some records what is wrong with them: they have no entries.
    """

    buffer: Bytes
    slots: Slots
    features: Features
    list_slots: Slots
    steps: Steps
    malformed: dict[int, str]


def parse(block: Block, *, sequence: bool = False) -> Parsed:
    """The entries of all records of a block, as Examples, or as SequenceExamples."""
    buffer = block.buffer
    malformed: dict[int, str] = {}
    records = np.arange(len(block.starts), dtype=np.int64)
    slots, lists, odd = _entries_of(buffer, records, block.starts, block.starts + block.sizes, sequence)
    features, steps, odd_inside = _contents(buffer, slots, lists)
    odd = np.union1d(odd, odd_inside)
    if len(odd):
        rewritten, malformed = _rewrite(block, odd, sequence)
        buffer, starts, ends = _appended(buffer, list(rewritten.values()))
        again = np.array(list(rewritten), dtype=np.int64)
        more, more_lists, rest = _entries_of(buffer, again, starts, ends, sequence)
        malformed |= dict.fromkeys(rest.tolist(), "it is too large")
        slots = _joined((_without(slots, odd), more))
        lists = _joined((_without(lists, odd), more_lists))
        features, steps, _ = _contents(buffer, slots, lists)
    return Parsed(buffer=buffer, slots=slots, features=features, list_slots=lists, steps=steps, malformed=malformed)


def _rewrite(block: Block, odd: Ints, sequence: bool) -> tuple[dict[int, bytes], dict[int, str]]:
    rewritten: dict[int, bytes] = {}
    malformed: dict[int, str] = {}
    for record in odd.tolist():
        start = int(block.starts[record])
        try:
            rewritten[record] = canonical(block.buffer[start : start + int(block.sizes[record])].tobytes(), sequence=sequence)
        except MalformedError as exc:
            malformed[record] = f"it is no {'SequenceExample' if sequence else 'Example'}: {exc}"
    return rewritten, malformed


def _appended(buffer: Bytes, records: list[bytes]) -> tuple[Bytes, Ints, Ints]:
    """The buffer with these records behind it, and where they start and end."""
    sizes = np.array([len(record) for record in records], dtype=np.int64)
    ends = len(buffer) + np.cumsum(sizes)
    more = np.frombuffer(b"".join((*records, bytes(TAIL_BYTES))), dtype=np.uint8)
    return np.concatenate((buffer, more)), ends - sizes, ends


def _contents(buffer: Bytes, slots: Slots, lists: Slots) -> tuple[Features, Steps, Ints]:
    """The features in all slots and feature lists, and the records where one is not in the encoding that is known here."""
    features, good = _features(buffer, slots.starts, slots.sizes)
    odd = slots.records[~good]
    elements = read_elements(buffer, lists.starts, lists.sizes)
    steps, good = _features(buffer, elements.starts, elements.sizes)
    odd_steps = np.repeat(lists.records, elements.counts)[~good]
    return features, Steps(counts=elements.counts, features=steps), np.concatenate((odd, odd_steps, lists.records[elements.bad]))


def _features(buffer: Bytes, starts: Ints, sizes: Ints) -> tuple[Features, Flags]:
    empty = sizes == 0
    tags = buffer[starts]
    inner, inner_sizes = delimited(buffer, starts)
    ends = starts + sizes
    known = (tags == 0x0A) | (tags == 0x12) | (tags == 0x1A)
    good = empty | (known & (inner + inner_sizes == ends))
    kinds = np.where(empty | ~good, np.uint8(Kind.NONE), tags >> 3).astype(np.uint8)
    packed = np.flatnonzero((kinds > Kind.BYTES) & (inner_sizes > 0))
    at = inner[packed]
    values, value_sizes = delimited(buffer, at)
    good[packed] &= (buffer[at] == FIRST) & (values + value_sizes == ends[packed])
    inner[packed], inner_sizes[packed] = values, value_sizes
    unusable = empty | ~good
    if unusable.any():
        inner_sizes[unusable] = 0
        inner[unusable] = starts[unusable]
    return Features(kinds=kinds, starts=inner, sizes=inner_sizes), good


def _entries_of(buffer: Bytes, records: Ints, starts: Ints, ends: Ints, sequence: bool) -> tuple[Slots, Slots, Ints]:
    """Entries of features and of feature lists, and the records that are not in the encoding that is known here."""
    group, rest, fine = _group(buffer, starts, ends, FIRST)
    if not sequence:
        fine &= rest == ends
        slots, odd = _entries(buffer, records[fine], group[fine], rest[fine])
        return slots, _joined(()), np.concatenate((odd, records[~fine]))
    second, after, also_fine = _group(buffer, rest, ends, SECOND)
    fine &= also_fine & (after == ends)
    slots, odd = _entries(buffer, records[fine], group[fine], rest[fine])
    lists, odd_lists = _entries(buffer, records[fine], second[fine], after[fine])
    return slots, lists, np.concatenate((odd, odd_lists, records[~fine]))


def _group(buffer: Bytes, starts: Ints, ends: Ints, tag: int) -> tuple[Ints, Ints, Flags]:
    """The range of an optional Features or FeatureLists message, and where it is well-formed."""
    there = (buffer[starts] == tag) & (starts < ends)
    inner, sizes = delimited(buffer, starts)
    inner = np.where(there, inner, starts)
    after = np.where(there, inner + sizes, starts)
    fine = after <= ends
    return inner, np.minimum(after, ends), fine


def _entries(buffer: Bytes, records: Ints, starts: Ints, ends: Ints) -> tuple[Slots, Ints]:
    """The map entries between `starts` and `ends`: first all first ones, then all second ones, and so on."""
    steps: list[Slots] = []
    odd: list[Ints] = [_NOTHING]
    while True:
        inside = starts < ends
        if not inside.all():
            records, starts, ends = records[inside], starts[inside], ends[inside]
        if len(records) == 0:
            return _joined(steps), np.concatenate(odd)
        entries, entry_sizes = delimited(buffer, starts)
        entry_ends = entries + entry_sizes
        # The shortest entry has an empty name and an empty value.
        good = (buffer[starts] == FIRST) & (entry_ends <= ends) & (entry_sizes >= 4)
        entries = np.where(good, entries, starts)
        names, name_sizes = delimited(buffer, entries)
        after_name = names + name_sizes
        good &= (buffer[entries] == FIRST) & (after_name + 2 <= entry_ends)
        after_name = np.where(good, after_name, starts)
        values, value_sizes = delimited(buffer, after_name)
        good &= (buffer[after_name] == SECOND) & (values + value_sizes == entry_ends)
        step = Slots(records=records, name_starts=names, name_sizes=name_sizes, starts=values, sizes=value_sizes)
        if not good.all():
            odd.append(records[~good])
            step, records, ends, entry_ends = _chosen(step, good), records[good], ends[good], entry_ends[good]
        steps.append(step)
        starts = entry_ends


def _without(slots: Slots, records: Ints) -> Slots:
    return _chosen(slots, ~np.isin(slots.records, records))


def _chosen(slots: Slots, chosen: Flags) -> Slots:
    return Slots(
        records=slots.records[chosen],
        name_starts=slots.name_starts[chosen],
        name_sizes=slots.name_sizes[chosen],
        starts=slots.starts[chosen],
        sizes=slots.sizes[chosen],
    )


def _joined(parts: Sequence[Slots]) -> Slots:
    if len(parts) == 1:
        return parts[0]
    return Slots(
        records=np.concatenate([_NOTHING, *(part.records for part in parts)]),
        name_starts=np.concatenate([_NOTHING, *(part.name_starts for part in parts)]),
        name_sizes=np.concatenate([_NOTHING, *(part.name_sizes for part in parts)]),
        starts=np.concatenate([_NOTHING, *(part.starts for part in parts)]),
        sizes=np.concatenate([_NOTHING, *(part.sizes for part in parts)]),
    )
