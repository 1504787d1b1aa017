"""A schema from a sample of records of several files, widened until it fits all of the sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.compression import open_compressed
from tfos_core.tfrecords.elements import read_elements
from tfos_core.tfrecords.fields import BYTE_ARRAY_COLUMN, Kind, RecordType
from tfos_core.tfrecords.folders import InputFile
from tfos_core.tfrecords.framing import Block, read_blocks
from tfos_core.tfrecords.options import ReadMode, ReadOptions
from tfos_core.tfrecords.parse import Parsed, parse
from tfos_core.tfrecords.problems import raise_first
from tfos_core.tfrecords.ranges import offsets_of

__all__ = ("Observed", "infer_schema", "observe", "partition_fields", "schema_of")

_SAMPLE_BYTES = 256 << 10


@dataclass(slots=True)
class Observed:
    """What was seen of one feature."""

    kinds: set[Kind] = field(default_factory=set)
    most_values: int = 0
    nested: bool = False
    single: bool = False
    is_text: bool = True
    place: str = ""


def infer_schema(files: Sequence[InputFile], options: ReadOptions) -> Any:
    """The Arrow schema that a sample of these files suggests: the features by name, then partition columns.

    Integers are int64, floats are float32, both in one feature are float64. A feature with more than one value in any record of the
    sample, or with none in all that have it, is an array. Bytes are a string when all of the sample is valid UTF-8, else binary.

    Raises:
        ConfigError: there are no records, or one feature holds both bytes and numbers.
        CorruptRecordError: a record of the sample is damaged (not with mode PERMISSIVE).
    """
    if options.record_type is RecordType.BYTE_ARRAY:
        return pa.schema([pa.field(BYTE_ARRAY_COLUMN, pa.binary()), *partition_fields(files)])
    observed: dict[str, Observed] = {}
    records = 0
    for file, block in _sample(files, options):
        parsed = parse(block, sequence=options.record_type is RecordType.SEQUENCE_EXAMPLE)
        observe(parsed, observed, f"{file.path} at byte {block.offset_of(0)}" if len(block.starts) else file.path)
        records += len(block.starts) - len(parsed.malformed)
    if records == 0:
        raise ConfigError(
            f"there are no records in {len(files)} files, so no schema can be inferred from them",
            "Give the schema: spark.read.schema(...), or read a folder that was written with a schema sidecar.",
        )
    return pa.schema([*schema_of(observed, options.binary_features), *partition_fields(files)])


def observe(parsed: Parsed, observed: dict[str, Observed], place: str) -> None:
    """Add what a block shows to what was seen before; `place` is for errors."""
    buffer = parsed.buffer
    slots, features = parsed.slots, parsed.features
    for number, (start, size) in enumerate(zip(slots.name_starts.tolist(), slots.name_sizes.tolist(), strict=True)):
        seen = observed.setdefault(buffer[start : start + size].tobytes().decode(errors="replace"), Observed(place=place))
        seen.single = True
        _observe_feature(parsed, features.kinds[number], features.starts[number], features.sizes[number], seen)
    lists, steps = parsed.list_slots, parsed.steps
    bounds = offsets_of(steps.counts).tolist()
    for number, (start, size) in enumerate(zip(lists.name_starts.tolist(), lists.name_sizes.tolist(), strict=True)):
        seen = observed.setdefault(buffer[start : start + size].tobytes().decode(errors="replace"), Observed(place=place))
        seen.nested = True
        for step in range(bounds[number], bounds[number + 1]):
            _observe_feature(parsed, steps.features.kinds[step], steps.features.starts[step], steps.features.sizes[step], seen)


def schema_of(observed: dict[str, Observed], binary_features: Sequence[str] = ()) -> list[Any]:
    """Arrow fields for what was seen, in the order of their names.

    Raises:
        ConfigError: a feature holds both bytes and numbers, or is both a feature and a feature list.
    """
    return [pa.field(name, _type(name, seen, name in binary_features)) for name, seen in sorted(observed.items())]


def partition_fields(files: Sequence[InputFile]) -> list[Any]:
    """Partition columns: int32, int64 or float64 when all values are such numbers, else strings."""
    values: dict[str, list[str]] = {}
    for file in files:
        for column, value in file.partition:
            values.setdefault(column, []).extend([] if value is None else [value])
    return [pa.field(column, _partition_type(seen)) for column, seen in values.items()]


def _sample(files: Sequence[InputFile], options: ReadOptions) -> Iterator[tuple[InputFile, Block]]:
    """The first records of files that lie evenly among all of them."""
    filled = [file for file in files if file.size]
    count = min(options.sample_files, len(filled))
    chosen = [filled[number * len(filled) // count] for number in range(count)]
    for number, file in enumerate(chosen):
        wanted = options.sample_records // count + (number < options.sample_records % count)
        storage = storage_of(file.path)
        with storage.open_input(file.path) as raw:
            for block in read_blocks(open_compressed(raw, options.compression), block_bytes=_SAMPLE_BYTES):
                if options.mode is ReadMode.FAILFAST:
                    raise_first(block.problems, file.path)
                yield file, Block(buffer=block.buffer, starts=block.starts[:wanted], sizes=block.sizes[:wanted], base=block.base)
                wanted -= len(block.starts)
                if wanted <= 0:
                    break


def _observe_feature(parsed: Parsed, kind: np.uint8, start: np.int64, size: np.int64, seen: Observed) -> None:
    if kind == Kind.NONE:
        return
    seen.kinds.add(Kind(int(kind)))
    content = parsed.buffer[start : start + size]
    if kind == Kind.FLOAT:
        count = len(content) // 4
    elif kind == Kind.INT64:
        count = int((content < 0x80).sum())
    else:
        elements = read_elements(parsed.buffer, np.array([start]), np.array([size]))
        count = len(elements.starts)
        if seen.is_text:
            seen.is_text = all(
                _is_text(parsed.buffer[at : at + length].tobytes())
                for at, length in zip(elements.starts.tolist(), elements.sizes.tolist(), strict=True)
            )
    seen.most_values = max(seen.most_values, count)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _type(name: str, seen: Observed, is_binary: bool) -> Any:
    if Kind.BYTES in seen.kinds and len(seen.kinds) > 1:
        raise ConfigError(f"feature {name!r} holds bytes in some records and numbers in others ({seen.place})", "Give the schema.")
    if seen.nested and seen.single:
        raise ConfigError(f"{name!r} is a feature in some records and a feature list in others ({seen.place})", "Give the schema.")
    if seen.kinds == {Kind.INT64}:
        leaf = pa.int64()
    elif Kind.FLOAT in seen.kinds:
        # A 32-bit float does not hold every integer, a 64-bit one holds both well enough.
        leaf = pa.float64() if Kind.INT64 in seen.kinds else pa.float32()
    else:
        leaf = pa.string() if seen.is_text and not is_binary else pa.binary()
    if seen.nested:
        return pa.list_(pa.list_(leaf))
    return leaf if seen.most_values == 1 else pa.list_(leaf)


def _partition_type(values: Sequence[str]) -> Any:
    try:
        numbers = [int(value) for value in values]
        if numbers and all(str(number) == value for number, value in zip(numbers, values, strict=True)):
            return pa.int32() if max(map(abs, numbers)) < 2**31 else pa.int64()
        if values and all(float(value) == float(value) for value in values):
            return pa.float64()
    except ValueError:
        pass
    return pa.string()
