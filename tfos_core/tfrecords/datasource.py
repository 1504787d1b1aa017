"""`format("tfrecord")` of Spark 4: the Python data source around the tasks. Importing this module imports pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from tfos_core.errors import ConfigError
from tfos_core.tfrecords.dataframe import ReadPlan, plan_read, start_write
from tfos_core.tfrecords.options import ReadOptions, WriteOptions, paths_of
from tfos_core.tfrecords.reading import ReadTask
from tfos_core.tfrecords.writing import SaveMode, WriteJob, WrittenFile

__all__ = ("TFRecordSource",)


class TFRecordSource(DataSource):  # type: ignore[misc]
    """Spark makes one for every read and every write, in a Python process of the driver."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(...)`."""
        return "tfrecord"

    def schema(self) -> Any:
        """Spark's schema: the writer's, or inferred."""
        return plan_read(paths_of(self.options), ReadOptions.of(self.options)).schema

    def reader(self, schema: Any) -> DataSourceReader:
        """Of rows with this schema, the one that a user gave or the one above."""
        return _Reader(plan_read(paths_of(self.options), ReadOptions.of(self.options), schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        """Of rows with this schema; Spark itself knows no more than append and overwrite for Python data sources."""
        paths = paths_of(self.options)
        if len(paths) != 1:
            raise ConfigError(f"a write has one path, and there are {len(paths)}", 'Use save("PATH").')
        options = WriteOptions.of(self.options)
        mode = SaveMode.OVERWRITE if overwrite else SaveMode.ERROR if options.refuse_existing else SaveMode.APPEND
        return _Writer(start_write(paths[0], schema, options, mode))


class _Group(InputPartition):  # type: ignore[misc]
    """The number of a group of files."""


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, plan: ReadPlan) -> None:
        self._task: ReadTask = plan.task
        self._groups = plan.groups

    def partitions(self) -> Sequence[InputPartition]:
        # A DataFrame without files still wants a task, which gives no rows.
        return [_Group(group) for group in self._groups] or [_Group(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._task.read(partition.value)


@dataclass(frozen=True)
class _Message(WriterCommitMessage):  # type: ignore[misc]
    """The files that a task has written."""

    files: tuple[WrittenFile, ...]


class _Writer(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, job: WriteJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> _Message:
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        return _Message(self._job.task().write(iterator, number))

    def commit(self, messages: Sequence[Any]) -> None:
        self._job.commit(tuple(file for message in messages if message is not None for file in message.files))

    def abort(self, messages: Sequence[Any]) -> None:
        self._job.abort()
