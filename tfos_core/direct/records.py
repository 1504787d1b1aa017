"""Shares of TFRecord files: ranges of bytes, moved to where records begin; of compressed files, which have no such places, a
pattern of records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tfos_core.direct.ahead import ahead
from tfos_core.direct.shares import Part
from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.compression import Compression, open_compressed, recognise
from tfos_core.tfrecords.fields import RecordType
from tfos_core.tfrecords.folders import InputFile, Sidecar, read_sidecar, within_output
from tfos_core.tfrecords.framing import Block, Problem, find_frame, read_blocks
from tfos_core.tfrecords.inference import infer_schema, partition_fields
from tfos_core.tfrecords.options import ReadMode, ReadOptions
from tfos_core.tfrecords.problems import log_left_out, raise_first
from tfos_core.tfrecords.reading import ReadTask
from tfos_core.tfrecords.spark_types import arrow_schema_of_ddl, arrow_schema_of_json

__all__ = ("RecordFiles",)

#: 2^64 over the golden ratio: multiples of it fill a range evenly, however many of them there are.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ALL = 1 << 64
#: Half of what Spark tasks take: the arrays made of a block stay in the cache, and what is read ahead stays small.
_BLOCK_BYTES = 4 << 20
#: Rows. What is cut out of a block at multiples of these begins at a multiple of 64 bytes, as the block's arrays do, and TensorFlow
#: takes it without a copy.
_EVEN_ROWS = 64


class RecordFiles:
    """TFRecord files; a piece is a file, and its length is its size in bytes.

    Types are those of `schema` (in Spark's words), else those that the writer left beside the files, else they are found in a
    sample of all files, which is the same on every node.

    Raises:
        ConfigError: an option can not be, or no types can be found.
        CorruptRecordError: a record of the sample is damaged.
    """

    def __init__(
        self, paths: Sequence[str], files: Sequence[InputFile], options: Mapping[str, str], schema: str | None = None
    ) -> None:
        chosen = ReadOptions.of(options)
        sidecar = read_sidecar(paths) if chosen.sidecar else None
        if sidecar is not None and sidecar.partition_by:
            files = tuple(within_output(file, sidecar.partition_by) for file in files)
        if chosen.record_type is None:
            chosen = replace(chosen, record_type=sidecar.record_type if sidecar else RecordType.EXAMPLE)
        self._files = files
        self._options = chosen
        self.schema = _schema(files, sidecar, chosen, schema)
        names = [field.name for field in partition_fields(files)]
        self._partition_columns = tuple(name for name in names if name in self.schema.names)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Bytes of each file."""
        return tuple(file.size for file in self._files)

    def path_of(self, part: Part) -> str:
        """The file of a part."""
        return self._files[part.piece].path

    def read(self, part: Part, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """The rows of a part in record batches of at most `rows`, or a few more when they are many.

        Raises:
            CorruptRecordError: a record is damaged or does not fit the columns (not with mode PERMISSIVE).
        """
        file = self._files[part.piece]
        schema = pa.schema([self.schema.field(name) for name in columns])
        partitions = tuple(name for name in self._partition_columns if name in columns)
        # Not down: a block that fits into one batch would become two.
        rows += -rows % _EVEN_ROWS if rows >= 16 * _EVEN_ROWS else 0
        task = ReadTask(schema=schema, options=self._options, partition_columns=partitions)
        with (
            storage_of(file.path).open_input(file.path) as raw,
            contextlib.closing(ahead(self._blocks(raw, file, part))) as blocks,
        ):
            for batch in task.decode(blocks, file):
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    def _blocks(self, raw: BinaryIO, file: InputFile, part: Part) -> Iterator[Block]:
        if part.is_whole:
            yield from read_blocks(open_compressed(raw, self._options.compression), block_bytes=_BLOCK_BYTES)
            return
        compression = self._options.compression
        if compression is None:
            compression = recognise(raw.read(12))
            raw.seek(0)
        if compression is not Compression.NONE:
            # Everybody sees what is damaged; where that is no error, one tells.
            told = self._options.mode is ReadMode.FAILFAST or part.begin == 0
            yield from _some_of(read_blocks(open_compressed(raw, compression), block_bytes=_BLOCK_BYTES), part, keep_problems=told)
            return
        first = find_frame(raw, part.begin) if part.begin else 0
        if isinstance(first, Problem):
            # Whoever has the part before finds the same; behind it there are no records for anybody.
            if self._options.mode is ReadMode.FAILFAST:
                raise_first([first], file.path)
            log_left_out([first], file.path)
            return
        raw.seek(first)
        yield from read_blocks(raw, block_bytes=_BLOCK_BYTES, start=first, stop=part.end)


def _some_of(blocks: Iterator[Block], part: Part, *, keep_problems: bool) -> Iterator[Block]:
    """Of each block this part's records: nodes that share a file take records in a fixed pattern, each its fraction of them."""
    low, high = part.begin * _ALL // part.length, part.end * _ALL // part.length
    position = 0
    for block in blocks:
        numbers = np.arange(position, position + len(block.starts), dtype=np.uint64) * _STEP
        position += len(block.starts)
        mine = numbers >= np.uint64(low)
        if high < _ALL:
            mine &= numbers < np.uint64(high)
        problems = block.problems if keep_problems else ()
        yield replace(block, starts=block.starts[mine], sizes=block.sizes[mine], problems=problems)


def _schema(files: Sequence[InputFile], sidecar: Sidecar | None, options: ReadOptions, schema: str | None) -> Any:
    if schema is not None:
        return arrow_schema_of_ddl(schema)
    if sidecar is not None:
        return arrow_schema_of_json(sidecar.schema)
    if not files:
        raise ConfigError("there are no TFRecord files, so there is no schema", "Check the path.")
    return infer_schema(files, options)
