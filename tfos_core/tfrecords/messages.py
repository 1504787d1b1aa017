"""The bytes around values in tf.train.Example and SequenceExample: tags and lengths; pure.

Each function gives what comes before `size` bytes of payload; the payload itself never passes through here.

    Example          features = 1
    SequenceExample  context = 1 (Features), feature_lists = 2 (FeatureLists)
    Features         map feature = 1           FeatureLists  map feature_list = 1       (a map entry: key = 1, value = 2)
    FeatureList      repeated Feature feature = 1
    Feature          oneof bytes_list = 1, float_list = 2, int64_list = 3               (each: repeated value = 1, numbers packed)
"""

from __future__ import annotations

from dataclasses import dataclass

from tfos_core.tfrecords.fields import Kind
from tfos_core.tfrecords.varints import varint

__all__ = ("FIRST", "SECOND", "EntryHead", "FeatureHead", "StepHead", "bytes_value", "feature_head", "group_head")

#: Tags of the length-delimited fields 1 and 2.
FIRST = 0x0A
SECOND = 0x12


def _delimited(tag: int, head: bytes, size: int) -> bytes:
    """A length-delimited field that holds `head` and `size` bytes more."""
    return bytes((tag,)) + varint(len(head) + size) + head


def group_head(tag: int, size: int) -> bytes:
    """Features or FeatureLists of `size` bytes inside the record."""
    return _delimited(tag, b"", size)


def bytes_value(size: int) -> bytes:
    """One value of a bytes_list."""
    return _delimited(FIRST, b"", size)


def feature_head(kind: Kind, size: int, *, single: bool) -> bytes:
    """A feature with `size` bytes of packed numbers, of one bytes value (`single`) or of encoded bytes values."""
    values = bytes_value(size) if single or (size and kind is not Kind.BYTES) else b""
    return _delimited(kind << 3 | 2, values, size)


@dataclass(frozen=True, slots=True)
class FeatureHead:
    """A map entry of Features around the payload of a feature."""

    name: bytes
    kind: Kind
    single: bool

    def __call__(self, size: int) -> bytes:
        return _entry(self.name, feature_head(self.kind, size, single=self.single), size)


@dataclass(frozen=True, slots=True)
class EntryHead:
    """A map entry of FeatureLists around its encoded steps."""

    name: bytes

    def __call__(self, size: int) -> bytes:
        return _entry(self.name, b"", size)


@dataclass(frozen=True, slots=True)
class StepHead:
    """One feature of a feature list."""

    kind: Kind

    def __call__(self, size: int) -> bytes:
        return _delimited(FIRST, feature_head(self.kind, size, single=False), size)


def _entry(name: bytes, head: bytes, size: int) -> bytes:
    key = _delimited(FIRST, name, 0)
    value = _delimited(SECOND, head, size)
    return _delimited(FIRST, key + value, size)
