"""Shares of Parquet files: ranges of rows, found through the footers of all files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tfos_core.direct.ahead import ahead
from tfos_core.direct.errors import DataError
from tfos_core.direct.shares import Part
from tfos_core.storage import storage_of
from tfos_core.tfrecords.folders import InputFile
from tfos_core.tfrecords.inference import partition_fields

__all__ = ("ParquetFiles",)

#: Footers that are read at once; on HDFS each is two or three round trips.
_READERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowGroup:
    file: InputFile
    number: int
    rows: int
    #: Of the whole file, so that its footer is read once.
    metadata: Any = field(repr=False)


class ParquetFiles:
    """Files of one schema; a piece is a row group, and its length is its number of rows.

    Raises:
        DataError: a file is not Parquet, or has other columns than the first one.
    """

    def __init__(self, files: Sequence[InputFile]) -> None:
        with ThreadPoolExecutor(min(_READERS, max(1, len(files)))) as pool:
            footers = list(pool.map(_footer, files))
        self._pieces = [group for groups, _ in footers for group in groups]
        stored = footers[0][1]
        for file, (_, schema) in zip(files, footers, strict=True):
            _check_same(stored, schema, files[0].path, file.path)
        self._partitions = [field for field in partition_fields(files) if field.name not in stored.names]
        self.schema = pa.schema([*stored, *self._partitions])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each piece."""
        return tuple(piece.rows for piece in self._pieces)

    def path_of(self, part: Part) -> str:
        """The file of a part."""
        return self._pieces[part.piece].file.path

    def read(self, part: Part, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """The rows of a part in record batches of at most `rows`.

        Raises:
            DataError: the file is damaged.
        """
        piece = self._pieces[part.piece]
        stored = [name for name in columns if name not in {field.name for field in self._partitions}]
        position = 0
        with contextlib.closing(ahead(_batches(piece, stored, rows))) as batches:
            for batch in batches:
                # Of a row group that nodes share, each decodes what comes before its own rows.
                begin, end = max(part.begin - position, 0), min(part.end - position, batch.num_rows)
                position += batch.num_rows
                if begin < end:
                    yield self._with_partitions(batch.slice(begin, end - begin), piece.file, columns)
                if position >= part.end:
                    return

    def _with_partitions(self, batch: Any, file: InputFile, columns: Sequence[str]) -> Any:
        values = dict(file.partition)
        arrays = []
        for name in columns:
            if name in batch.schema.names:
                arrays.append(batch.column(name))
            else:
                kind = self.schema.field(name).type
                value = values.get(name)
                one = pa.nulls(1, kind) if value is None else pa.array([value]).cast(kind)
                arrays.append(pa.repeat(one[0], batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _batches(piece: _RowGroup, columns: Sequence[str], rows: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with storage_of(piece.file.path).open_input(piece.file.path) as file:
        try:
            if columns:
                yield from pq.ParquetFile(file, pre_buffer=True).iter_batches(
                    rows, row_groups=[piece.number], columns=list(columns)
                )
                return
        except (pa.ArrowException, OSError) as exc:
            raise DataError(f"{piece.file.path}: row group {piece.number} can not be read: {_first_line(exc)}", _HINT) from exc
    for start in range(0, piece.rows, rows):
        # Nothing but partition columns, which are in no file.
        nothing = pa.nulls(min(rows, piece.rows - start))
        yield pa.RecordBatch.from_arrays([nothing], names=["nothing"])


def _footer(file: InputFile) -> tuple[list[_RowGroup], Any]:
    import pyarrow.parquet as pq

    with storage_of(file.path).open_input(file.path) as opened:
        try:
            parquet = pq.ParquetFile(opened)
            metadata = parquet.metadata
            groups = [
                _RowGroup(file=file, number=number, rows=metadata.row_group(number).num_rows, metadata=metadata)
                for number in range(metadata.num_row_groups)
            ]
            return groups, parquet.schema_arrow
        except (pa.ArrowException, OSError) as exc:
            raise DataError(f"{file.path} can not be read as Parquet: {_first_line(exc)}", _HINT) from exc


_HINT = "Is it a whole Parquet file? Write it again, or name the others only (a path may have wildcards)."


def _check_same(expected: Any, schema: Any, first: str, path: str) -> None:
    for column in expected:
        index = schema.get_field_index(column.name)
        if index < 0:
            raise DataError(f"{path} has no column {column.name!r}, which {first} has", _SAME)
        if schema.field(index).type != column.type:
            raise DataError(f"{path} has {column.name!r} as {schema.field(index).type}, and {first} as {column.type}", _SAME)


_SAME = "Write all files with one schema, or name those of one schema only."


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0]
