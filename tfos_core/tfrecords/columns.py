"""One column of a block of parsed records as an Arrow array."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfos_core.tfrecords.fields import Field, Kind
from tfos_core.tfrecords.leaves import Values, convert, read_values
from tfos_core.tfrecords.parse import Features, Parsed
from tfos_core.tfrecords.ranges import Ints, offsets_of

__all__ = ("ColumnReader", "Rejected")

Flags = NDArray[np.bool_]
_CONTENT = {Kind.BYTES: "bytes", Kind.FLOAT: "floats", Kind.INT64: "integers"}


@dataclass(slots=True)
class Rejected:
    """Records that do not fit, with the first reason of each."""

    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, records: Ints, reason: str) -> None:
        """All of these for one reason."""
        for record in records.tolist():
            self.reasons.setdefault(record, reason)


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads one column of `count` records; those that do not fit are told to `rejected` and are null here."""

    field: Field
    count: int
    parsed: Parsed
    rejected: Rejected

    def read(self, slots: Ints, list_slots: Ints) -> Any:
        """The column, null where a record has no such feature; the arguments number its features and its feature lists."""
        depth = self.field.depth
        if depth == 2 and len(slots):
            self._reject(self.parsed.slots.records[slots], "is a single feature")
        if depth == 0 and len(list_slots):
            self._reject(self.parsed.list_slots.records[list_slots], "is a feature list")
        if depth == 2 or (depth == 1 and len(list_slots)):
            column = self._from_feature_lists(*_last_of_each(list_slots, self.parsed.list_slots.records, self.count))
        else:
            column = self._from_features(*_last_of_each(slots, self.parsed.slots.records, self.count))
        if not self.field.nullable and column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
            self._reject(missing, "is missing", ", which is never null")
        return column

    def _reject(self, records: Ints, what: str, more: str = "") -> None:
        if len(records):
            self.rejected.add(records, f"{self.field.name!r} {what}, but the schema says {self.field.type}{more}")

    def _from_features(self, slots: Ints, records: Ints) -> Any:
        features = self.parsed.features.take(slots)
        values = self._values(features, records)
        there = features.kinds != Kind.NONE
        if self.field.depth == 0:
            return self._scalars(values, records)
        counts = np.zeros(self.count, dtype=np.int64)
        absent = np.ones(self.count, dtype=np.bool_)
        counts[records], absent[records] = values.counts, ~there
        return _lists(counts, self._converted(values, records), self.field.type, absent)

    def _scalars(self, values: Values, records: Ints) -> Any:
        several = values.counts > 1
        if several.any():
            self._reject(records[several], f"has {int(values.counts[several][0])} values")
            kept = ~np.repeat(several, values.counts)
            values = Values(flat=values.flat.filter(pa.array(kept)), counts=np.where(several, 0, values.counts), bad=values.bad)
        flat = self._converted(values, records)
        if len(flat) == self.count:
            return flat
        # Where a record has a value: the position of that value.
        places = np.zeros(self.count, dtype=np.int64)
        missing = np.ones(self.count, dtype=np.bool_)
        filled = records[values.counts == 1]
        places[filled], missing[filled] = np.arange(len(flat)), False
        return flat.take(pa.array(places, mask=missing))

    def _from_feature_lists(self, slots: Ints, records: Ints) -> Any:
        steps = self.parsed.steps
        firsts = offsets_of(steps.counts)[slots]
        step_counts = steps.counts[slots]
        within = np.arange(int(step_counts.sum())) - np.repeat(offsets_of(step_counts)[:-1], step_counts)
        features = steps.features.take(np.repeat(firsts, step_counts) + within)
        owners = np.repeat(records, step_counts)
        values = self._values(features, owners)
        counts = np.zeros(self.count, dtype=np.int64)
        absent = np.ones(self.count, dtype=np.bool_)
        counts[records], absent[records] = step_counts, False
        if self.field.depth == 2:
            inner = _lists(values.counts, self._converted(values, owners), self.field.type.value_type, None)
            return _lists(counts, inner, self.field.type, absent)
        # Sequences of single values are usually written as one value a step.
        self._reject(owners[values.counts != 1], "has a step without exactly one value")
        counts[records] = np.bincount(owners, weights=values.counts, minlength=self.count).astype(np.int64)[records]
        return _lists(counts, self._converted(values, owners), self.field.type, absent)

    def _values(self, features: Features, records: Ints) -> Values:
        """The values of these features; one that has another kind of list is rejected and counts as empty."""
        kinds, wanted = features.kinds, self.field.kind
        integers = kinds == Kind.INT64
        widened = wanted is Kind.FLOAT and bool(integers.any())
        # An empty list says nothing about its kind.
        wrong = (kinds != wanted) & (kinds != Kind.NONE) & (features.sizes > 0)
        if widened:
            wrong &= ~integers
        if wrong.any():
            for kind in np.unique(kinds[wrong]).tolist():
                self._reject(records[wrong & (kinds == kind)], f"has {_CONTENT[Kind(kind)]}")
            features = _emptied(features, wrong)
        if not widened:
            values = read_values(self.parsed.buffer, features, wanted)
        else:
            values = _merged(
                integers,
                read_values(self.parsed.buffer, _emptied(features, ~integers), Kind.INT64),
                read_values(self.parsed.buffer, _emptied(features, integers), Kind.FLOAT),
            )
        if values.bad.any():
            self.rejected.add(records[values.bad], f"the values of {self.field.name!r} are malformed")
        return values

    def _converted(self, values: Values, records: Ints) -> Any:
        flat, bad = convert(values.flat, self.field)
        if bad.any():
            self._reject(np.repeat(records, values.counts)[bad], "has a value that can not be read as that")
        return flat


def _last_of_each(slots: Ints, owners: Ints, count: int) -> tuple[Ints, Ints]:
    """For each record that has one, its last slot (as in protobuf, where the last of equal keys wins), and the record."""
    of_record = np.full(count, -1, dtype=np.int64)
    of_record[owners[slots]] = slots
    records = np.flatnonzero(of_record >= 0)
    return of_record[records], records


def _emptied(features: Features, chosen: Flags) -> Features:
    return Features(kinds=features.kinds, starts=features.starts, sizes=np.where(chosen, 0, features.sizes))


def _merged(first_here: Flags, first: Values, second: Values) -> Values:
    """Numbers of two kinds as doubles, in the order of their features."""
    counts = first.counts + second.counts
    flat = np.empty(int(counts.sum()), dtype=np.float64)
    from_first = np.repeat(first_here, counts)
    flat[from_first] = first.flat.to_numpy()
    flat[~from_first] = second.flat.to_numpy()
    return Values(flat=pa.array(flat), counts=counts, bad=first.bad | second.bad)


def _lists(counts: Ints, values: Any, type_: Any, absent: Flags | None) -> Any:
    """A list array of exactly this type."""
    offsets = offsets_of(counts)
    if pa.types.is_fixed_size_list(type_):
        variable = pa.list_(type_.value_field)
        return _lists(counts, values, variable, absent).cast(type_)
    large = pa.types.is_large_list(type_)
    kind = pa.LargeListArray if large else pa.ListArray
    mask = None if absent is None or not absent.any() else pa.array(absent)
    return kind.from_arrays(pa.array(offsets if large else offsets.astype(np.int32)), values, type=type_, mask=mask)
