"""The general protobuf parser, one record at a time: turns any valid encoding of a record into the one that `encode` writes.

Writers may leave numbers unpacked, split lists, repeat map keys or add unknown fields. Few do, so `parse` knows one encoding, in
bulk, and sends the others through here first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfos_core.tfrecords.fields import Kind
from tfos_core.tfrecords.messages import FIRST, SECOND, EntryHead, FeatureHead, StepHead, bytes_value, group_head
from tfos_core.tfrecords.varints import MAX_BYTES, encode

__all__ = ("Feature", "MalformedError", "Record", "canonical", "parse_record")


class MalformedError(ValueError):
    """These bytes are no such message."""


@dataclass(slots=True)
class Feature:
    """The values of a feature: ints, floats or bytes, as its kind says."""

    kind: Kind = Kind.NONE
    values: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """An Example, or a SequenceExample with its context as `features`."""

    features: dict[bytes, Feature] = field(default_factory=dict)
    feature_lists: dict[bytes, list[Feature]] = field(default_factory=dict)


def parse_record(data: bytes, *, sequence: bool) -> Record:
    """A serialised Example, or a SequenceExample when `sequence`.

    Raises:
        MalformedError: it is none.
    """
    record = Record()
    for number, body in _messages(data):
        if number == 1:
            for name, value in _entries(body):
                record.features[name] = _feature(value)
        elif number == 2 and sequence:
            for name, value in _entries(body):
                record.feature_lists[name] = [_feature(step) for n, step in _messages(value) if n == 1]
    return record


def canonical(data: bytes, *, sequence: bool) -> bytes:
    """The same record in the encoding that `encode` writes.

    Raises:
        MalformedError: it is no such record.
    """
    record = parse_record(data, sequence=sequence)
    features = b"".join(_encoded(name, feature) for name, feature in record.features.items())
    encoded = group_head(FIRST, len(features)) + features
    if sequence:
        lists = b"".join(_encoded_list(name, steps) for name, steps in record.feature_lists.items())
        encoded += group_head(SECOND, len(lists)) + lists
    return encoded


def _encoded(name: bytes, feature: Feature) -> bytes:
    if feature.kind is Kind.NONE:
        return EntryHead(name)(0)
    payload = _payload(feature)
    return FeatureHead(name, feature.kind, single=False)(len(payload)) + payload


def _encoded_list(name: bytes, steps: list[Feature]) -> bytes:
    stream = b""
    for step in steps:
        payload = _payload(step)
        head = StepHead(step.kind)(len(payload)) if step.kind is not Kind.NONE else group_head(FIRST, 0)
        stream += head + payload
    return EntryHead(name)(len(stream)) + stream


def _payload(feature: Feature) -> bytes:
    if feature.kind is Kind.INT64:
        return encode(np.array(feature.values, dtype=np.int64))[0].tobytes()
    if feature.kind is Kind.FLOAT:
        return np.array(feature.values, dtype="<f4").tobytes()
    return b"".join(bytes_value(len(value)) + value for value in feature.values)


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the map that is field 1; of two keys in an entry the last counts, two values are merged."""
    for number, entry in _messages(data):
        if number != 1:
            continue
        name, value = b"", b""
        for part, body in _messages(entry):
            if part == 1:
                name = body
            elif part == 2:
                value += body
        yield name, value


def _feature(data: bytes) -> Feature:
    feature = Feature()
    for number, body in _messages(data):
        if number not in (1, 2, 3):
            continue
        kind = Kind(number)
        if feature.kind is not kind:
            feature = Feature(kind, [])
        match kind:
            case Kind.BYTES:
                feature.values += [value for n, value in _messages(body) if n == 1]
            case Kind.FLOAT:
                feature.values += list(_floats(body))
            case _:
                feature.values += list(_ints(body))
    return feature


def _floats(data: bytes) -> Iterator[float]:
    for number, wire, body in _fields(data):
        if number == 1 and wire in (2, 5):
            if len(body) % 4:
                raise MalformedError("a list of floats has a part of a float at its end")
            yield from struct.unpack(f"<{len(body) // 4}f", body)


def _ints(data: bytes) -> Iterator[int]:
    for number, wire, body in _fields(data):
        if number == 1 and wire in (0, 2):
            position = 0
            while position < len(body):
                value, position = _varint(body, position)
                yield value - (1 << 64) if value >= 1 << 63 else value


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, body) for number, wire, body in _fields(data) if wire == 2)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and raw bytes of each field; groups, which protobuf has given up, are refused."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        start = position
        if wire == 0:
            _, position = _varint(data, position)
        elif wire == 1:
            position += 8
        elif wire == 5:
            position += 4
        elif wire == 2:
            size, start = _varint(data, position)
            position = start + size
        else:
            raise MalformedError(f"a field has the wire type {wire}")
        if position > len(data) or number == 0:
            raise MalformedError("a field goes beyond the end of its message")
        yield number, wire, data[start:position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for step, byte in enumerate(data[position : position + MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + step + 1
    raise MalformedError("a number does not end")
