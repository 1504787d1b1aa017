"""The task that writes record batches into files, and the commit that makes all of them visible at once.

Tasks write into a hidden folder beside the target. The driver moves that folder to the target in one step, or, when appending, the
files into it; so a write that fails, or a driver that dies, leaves nothing that looks like a result. Files of attempts that failed
are not in any commit message and are removed.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tfos_core.errors import ConfigError
from tfos_core.storage import storage_of
from tfos_core.tfrecords.compression import OutputStream, write_compressed
from tfos_core.tfrecords.encode import encode_in_parts
from tfos_core.tfrecords.fields import Field, fields_of
from tfos_core.tfrecords.folders import SIDECAR_NAME, Sidecar, folder_name
from tfos_core.tfrecords.options import WriteOptions

__all__ = ("SaveMode", "WriteJob", "WriteTask", "WrittenFile")


class SaveMode(StrEnum):
    """What happens when the target exists."""

    ERROR = "error"
    OVERWRITE = "overwrite"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A finished file: its path below the hidden folder, which is also its path below the target."""

    below: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Writes one task's rows into the hidden folder `staging`."""

    staging: str
    options: WriteOptions

    def write(self, batches: Iterable[Any], number: int) -> tuple[WrittenFile, ...]:
        """A file for each partition value among the rows; `number` is the task's.

        Raises:
            ConfigError: a value that a TFRecord can not hold.
        """
        attempt = uuid.uuid4().hex[:12]
        suffix = f".tfrecord{self.options.compression.suffix}"
        open_files: dict[str, _OpenFile] = {}
        try:
            for batch in batches:
                for folder, rows in _by_folder(batch, self.options.partition_by):
                    if folder not in open_files:
                        below = posixpath.join(folder, f"part-{number:05d}-{attempt}{suffix}")
                        open_files[folder] = _OpenFile(posixpath.join(self.staging, below), below, rows.schema, self.options)
                    open_files[folder].write(rows)
            return tuple(file.finish() for file in open_files.values())
        finally:
            for file in open_files.values():
                file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """A whole write as the driver sees it; `schema` is Spark's as JSON, for the sidecar."""

    target: str
    staging: str
    mode: SaveMode
    sidecar: Sidecar
    options: WriteOptions

    @classmethod
    def start(cls, path: str, schema: Any, spark_schema: Any, options: WriteOptions, mode: SaveMode) -> WriteJob:
        """Check what can be checked before a row is computed.

        Args:
            schema: of the rows, Arrow's.
            spark_schema: the same as Spark's JSON.

        Raises:
            ConfigError: the target exists (mode error) or has another schema (append), a column can not be written, or a partition
                column does not exist.
        """
        storage = storage_of(path)
        target = storage.absolute(path).rstrip("/")
        missing = [name for name in options.partition_by if name not in schema.names]
        if missing:
            raise ConfigError(
                f"partitionBy names {missing[0]!r}, and there is no such column", f"Columns are {', '.join(schema.names)}."
            )
        columns = [column for column in schema if column.name not in options.partition_by]
        if not columns:
            raise ConfigError(
                "all columns are in partitionBy, so records would be empty", "Leave at least one column for the records."
            )
        fields_of(columns, options.record_type)
        sidecar = Sidecar(schema=spark_schema, record_type=options.record_type, partition_by=options.partition_by)
        if mode is SaveMode.ERROR and storage.exists(target):
            raise ConfigError(f"{path} already exists", "Write somewhere else, or use mode overwrite or append.")
        if mode is SaveMode.APPEND:
            _check_appendable(target, sidecar)
        staging = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.tfos-{uuid.uuid4().hex}")
        return cls(target=target, staging=staging, mode=mode, sidecar=sidecar, options=options)

    def task(self) -> WriteTask:
        """What executors run."""
        return WriteTask(staging=self.staging, options=self.options)

    def commit(self, written: Sequence[WrittenFile]) -> None:
        """Make these files the result; the hidden folder is gone afterwards.

        Raises:
            ConfigError: the target has come into being meanwhile (mode error).
        """
        storage = storage_of(self.target)
        try:
            known = {file.below for file in written}
            for entry in list(storage.files_below(self.staging)):
                if entry.below not in known:
                    storage.remove(entry.path)
            _write_text(posixpath.join(self.staging, SIDECAR_NAME), self.sidecar.to_json())
            _write_text(posixpath.join(self.staging, "_SUCCESS"), "")
            if not storage.exists(self.target):
                storage.rename(self.staging, self.target)
            elif self.mode is SaveMode.OVERWRITE:
                replaced = f"{self.staging}-replaced"
                storage.rename(self.target, replaced)
                storage.rename(self.staging, self.target)
                storage.remove(replaced)
            elif self.mode is SaveMode.APPEND:
                self._append(written)
            else:
                raise ConfigError(f"{self.target} was made by somebody else while it was being written", "Write somewhere else.")
        finally:
            storage.remove(self.staging)

    def abort(self) -> None:
        """Leave nothing behind."""
        storage_of(self.target).remove(self.staging)

    def _append(self, written: Sequence[WrittenFile]) -> None:
        storage = storage_of(self.target)
        names = [*(file.below for file in written), *(name for name in (SIDECAR_NAME, "_SUCCESS") if not self._has(name))]
        for below in names:
            storage.rename(posixpath.join(self.staging, below), posixpath.join(self.target, below))

    def _has(self, name: str) -> bool:
        return storage_of(self.target).exists(posixpath.join(self.target, name))


class _OpenFile:
    """A file that is being written."""

    def __init__(self, path: str, below: str, schema: Any, options: WriteOptions) -> None:
        self._fields: tuple[Field, ...] = fields_of(schema, options.record_type)
        self._options = options
        self._below = below
        self._rows = 0
        self._file: BinaryIO = storage_of(path).open_output(path)
        self._stream: OutputStream = write_compressed(self._file, options.compression, options.level)

    def write(self, batch: Any) -> None:
        for frames in encode_in_parts(batch, self._fields, self._options.record_type):
            self._stream.write(frames.data.data)
        self._rows += batch.num_rows

    def finish(self) -> WrittenFile:
        self._stream.finish()
        # A full disk shows when a file is closed.
        self._file.close()
        return WrittenFile(below=self._below, rows=self._rows)

    def close(self) -> None:
        self._file.close()


def _check_appendable(target: str, sidecar: Sidecar) -> None:
    storage = storage_of(target)
    path = posixpath.join(target, SIDECAR_NAME)
    if not storage.exists(path):
        return
    with storage.open_input(path) as file:
        there = Sidecar.of_json(file.read().decode(), path)
    if there != sidecar:
        raise ConfigError(
            f"{target} holds {_shown(there)}, and this would append {_shown(sidecar)}",
            "Select and cast the columns to the schema that is there, or write into another folder.",
        )


def _shown(sidecar: Sidecar) -> str:
    columns = ", ".join(f"{column['name']} {column['type']}" for column in sidecar.schema["fields"])
    return f"{sidecar.record_type} records of ({columns}) partitioned by ({', '.join(sidecar.partition_by)})"


def _write_text(path: str, text: str) -> None:
    with storage_of(path).open_output(path) as file:
        file.write(text.encode())


def _by_folder(batch: Any, partition_by: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The rows of each partition folder, without the partition columns."""
    if not partition_by:
        if batch.num_rows:
            yield "", batch
        return
    keys = pa.Table.from_arrays([_texts(batch.column(name)) for name in partition_by], names=list(partition_by))
    distinct = keys.group_by(list(partition_by)).aggregate([]).to_pylist()
    rest = batch.select([name for name in batch.schema.names if name not in partition_by])
    codes = _codes(keys, partition_by, distinct)
    for number, values in enumerate(distinct):
        folder = posixpath.join(*(folder_name(name, values[name]) for name in partition_by))
        yield folder, rest.take(pa.array(np.flatnonzero(codes == number)))


def _texts(column: Any) -> Any:
    return column.cast(pa.string())


def _codes(keys: Any, names: Sequence[str], distinct: Sequence[dict[str, str | None]]) -> Any:
    """The number of its key for each row."""
    codes = np.zeros(keys.num_rows, dtype=np.int64)
    sizes = []
    for name in names:
        encoded = keys.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        sizes.append({value: number for number, value in enumerate(encoded.dictionary.to_pylist())})
    numbers = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    for position, values in enumerate(distinct):
        code = 0
        for name, table in zip(names, sizes, strict=True):
            code = code * len(table) + table[values[name]]
        numbers[code] = position
    return numbers[codes]
