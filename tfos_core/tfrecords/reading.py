"""The task that reads files into Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.compression import open_compressed
from tfos_core.tfrecords.decode import Decoded, Decoder
from tfos_core.tfrecords.fields import Field, RecordType, fields_of
from tfos_core.tfrecords.folders import InputFile
from tfos_core.tfrecords.framing import Block, Problem, read_blocks
from tfos_core.tfrecords.options import ReadMode, ReadOptions
from tfos_core.tfrecords.problems import log_left_out, raise_first, sentence

__all__ = ("ReadTask",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """Reads files as `schema`, an Arrow schema; columns that are in no record are null.

    `partition_columns` come from folder names. In mode PERMISSIVE, records that can not be used are rows with nothing but a
    sentence in the column for corrupt records when the schema has it, and are left out and logged otherwise.
    """

    schema: Any
    options: ReadOptions
    partition_columns: tuple[str, ...] = ()

    def check(self) -> None:
        """Find out on the driver what would fail in every task.

        Raises:
            ConfigError: a column has a type that can not be read.
        """
        self._record_fields()
        corrupt = self._corrupt_column()
        if corrupt is not None and not pa.types.is_string(corrupt.type):
            raise ConfigError(
                f"column {corrupt.name!r} is for damaged records and has the type {corrupt.type}", "Make it a string."
            )

    def read(self, files: Sequence[InputFile]) -> Iterator[Any]:
        """The rows of these files.

        Raises:
            CorruptRecordError: in mode FAILFAST, for a record that is damaged or does not fit.
        """
        for file in files:
            with storage_of(file.path).open_input(file.path) as raw:
                yield from self.decode(read_blocks(open_compressed(raw, self.options.compression)), file)

    def decode(self, blocks: Iterable[Block], file: InputFile) -> Iterator[Any]:
        """The rows of blocks of a file.

        Raises:
            CorruptRecordError: as `read`.
        """
        fields = self._record_fields()
        decoder = Decoder(fields, self.options.record_type or RecordType.EXAMPLE)
        left_out: list[Problem] = []
        for block in blocks:
            decoded = decoder.decode(block)
            if self.options.mode is ReadMode.FAILFAST:
                raise_first(decoded.problems, file.path)
            left_out.extend(decoded.problems)
            yield from self._batches(fields, decoded, file)
        log_left_out(left_out, file.path)

    def _record_fields(self) -> tuple[Field, ...]:
        special = {*self.partition_columns}
        if self.options.mode is ReadMode.PERMISSIVE:
            special.add(self.options.corrupt_column)
        return fields_of(
            [column for column in self.schema if column.name not in special], self.options.record_type or RecordType.EXAMPLE
        )

    def _corrupt_column(self) -> Any:
        name = self.options.corrupt_column
        permissive = self.options.mode is ReadMode.PERMISSIVE
        return self.schema.field(name) if permissive and name in self.schema.names else None

    def _batches(self, fields: Sequence[Field], decoded: Decoded, file: InputFile) -> Iterator[Any]:
        count = len(decoded.offsets)
        columns = {field.name: column for field, column in zip(fields, decoded.columns, strict=True)}
        corrupt = self._corrupt_column()
        if corrupt is not None:
            columns[corrupt.name] = pa.nulls(count, corrupt.type)
        if count:
            yield self._batch(columns, count, file)
        if corrupt is not None and decoded.problems:
            sentences = pa.array([sentence(problem, file.path) for problem in decoded.problems], corrupt.type)
            empty = {field.name: pa.nulls(len(sentences), field.type) for field in fields}
            yield self._batch(empty | {corrupt.name: sentences}, len(sentences), file)

    def _batch(self, columns: dict[str, Any], count: int, file: InputFile) -> Any:
        values = dict(file.partition)
        arrays = [
            _constant(values.get(column.name), column, count, file)
            if column.name in self.partition_columns
            else columns[column.name]
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _constant(value: str | None, column: Any, count: int, file: InputFile) -> Any:
    """The same value for every row."""
    if value is None:
        return pa.nulls(count, column.type)
    try:
        one = pa.array([value]).cast(column.type)
    except pa.ArrowInvalid as exc:
        raise ConfigError(
            f"{file.path}: the folder says {column.name}={value}, which is no {column.type}",
            "Correct the schema, or the folder's name.",
        ) from exc
    return one.take(pa.array(np.zeros(count, dtype=np.int64)))
