"""DataFrames from and to TFRecords, on every Spark: `mapInArrow` around the tasks, and the commit on the driver."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tfos_core.errors import ConfigError
from tfos_core.paths import absolute_path, has_scheme
from tfos_core.tfrecords.fields import RecordType
from tfos_core.tfrecords.folders import InputFile, Sidecar, list_files, pack, read_sidecar, within_output
from tfos_core.tfrecords.inference import infer_schema, partition_fields
from tfos_core.tfrecords.options import ReadOptions, WriteOptions
from tfos_core.tfrecords.reading import ReadTask
from tfos_core.tfrecords.writing import SaveMode, WriteJob, WriteTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ("ReadPlan", "arrow_schema", "load_tfrecords", "plan_read", "save_as_tfrecords", "start_write")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What to read, and how: Spark's schema, the task, and its files in groups, one for each Spark task."""

    schema: Any
    task: ReadTask
    groups: tuple[tuple[InputFile, ...], ...]


def load_tfrecords(
    spark: SparkSession, path: str | Sequence[str], *, schema: Any = None, options: Mapping[str, str] | None = None
) -> DataFrame:
    """A DataFrame of the TFRecords at one or several paths; the options are those of `format("tfrecord")`.

    Without a schema it is the one that the writer left beside the files, else one inferred from a sample.

    Raises:
        ConfigError: a path does not exist, an option or a type can not be, or there is nothing to infer a schema from.
        CorruptRecordError: a sampled record is damaged.
    """
    paths = tuple(_qualified(spark, each) for each in ((path,) if isinstance(path, str) else path))
    plan = plan_read(paths, ReadOptions.of(options or {}), _struct(schema))
    if not plan.groups:
        return spark.createDataFrame([], plan.schema)
    tasks = spark.range(0, len(plan.groups), 1, len(plan.groups))
    return tasks.mapInArrow(_ReadGroups(plan.task, plan.groups), plan.schema)


def save_as_tfrecords(
    df: DataFrame, path: str, *, mode: SaveMode | str = SaveMode.ERROR, options: Mapping[str, str] | None = None
) -> int:
    """Write a DataFrame; the options are those of `format("tfrecord")`. Returns the number of rows.

    Raises:
        ConfigError: the path exists (mode error), an option can not be, or a column's type can not be written.
    """
    job = start_write(_qualified(df.sparkSession, path), df.schema, WriteOptions.of(options or {}), _save_mode(mode))
    try:
        messages = df.mapInArrow(_WriteRows(job.task()), "written binary").collect()
        written = tuple(file for message in messages for file in pickle.loads(message.written))
        job.commit(written)
    except BaseException:
        job.abort()
        raise
    return sum(file.rows for file in written)


def plan_read(paths: Sequence[str], options: ReadOptions, schema: Any = None) -> ReadPlan:
    """What reading these paths means; `schema` is Spark's, None finds out.

    Raises:
        ConfigError: as `load_tfrecords`.
        CorruptRecordError: a sampled record is damaged.
    """
    files = list_files(paths)
    sidecar = read_sidecar(paths) if options.sidecar else None
    if sidecar is not None and sidecar.partition_by:
        files = tuple(within_output(file, sidecar.partition_by) for file in files)
    if options.record_type is None:
        options = replace(options, record_type=sidecar.record_type if sidecar else RecordType.EXAMPLE)
    if schema is None:
        schema = _found_schema(files, sidecar, options)
    names = [field.name for field in partition_fields(files)] or list(sidecar.partition_by if sidecar else ())
    partition_columns = tuple(name for name in names if name in schema.names)
    task = ReadTask(schema=arrow_schema(schema), options=options, partition_columns=partition_columns)
    task.check()
    return ReadPlan(schema=schema, task=task, groups=pack([file for file in files if file.size], options.partition_bytes))


def start_write(path: str, schema: Any, options: WriteOptions, mode: SaveMode) -> WriteJob:
    """A write of rows with this schema of Spark's.

    Raises:
        ConfigError: as `save_as_tfrecords`.
    """
    return WriteJob.start(path, arrow_schema(schema), schema.jsonValue(), options, mode)


def arrow_schema(schema: Any) -> Any:
    """Spark's schema as Arrow's, exactly as Spark compares it.

    Raises:
        ConfigError: a type has no counterpart in Arrow.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before 4.2 there was no such argument, and timestamps were UTC anyway.
    timezone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    try:
        return to_arrow_schema(schema, **timezone)
    except PySparkException as exc:
        raise ConfigError(
            f"the schema has a type that a TFRecord can not hold: {exc}", "Cast the column, or leave it out."
        ) from exc


@dataclass(frozen=True, slots=True)
class _ReadGroups:
    """Each row of the input names a group of files."""

    task: ReadTask
    groups: tuple[tuple[InputFile, ...], ...]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.task.read(self.groups[number])


@dataclass(frozen=True, slots=True)
class _WriteRows:
    """The output is one row that tells which files were written."""

    task: WriteTask

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        written = self.task.write(batches, context.partitionId() if context is not None else 0)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(written)], pa.binary())], names=["written"])


def _found_schema(files: Sequence[InputFile], sidecar: Sidecar | None, options: ReadOptions) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    if sidecar is not None:
        schema = StructType.fromJson(dict(sidecar.schema))
        # What is null nowhere when it is written may be absent from files that somebody else adds; Spark's own sources do the same.
        for field in schema.fields:
            field.nullable = True
        return schema
    if not files:
        raise ConfigError("there are no TFRecord files, so there is no schema", "Check the path, or give a schema.")
    return from_arrow_schema(infer_schema(files, options))


def _qualified(spark: SparkSession, path: str) -> str:
    """A path without a scheme is on the default file system, as for Spark's own sources: on YARN that is mostly HDFS."""
    if has_scheme(path):
        return path
    try:
        default = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "")
    except AttributeError:
        return path  # a session without a JVM on this side
    return absolute_path(path, default_fs=default) if has_scheme(default) and not default.startswith("file:") else path


def _struct(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema) if hasattr(StructType, "fromDDL") else _parsed(schema)


def _parsed(schema: str) -> Any:
    from pyspark.sql.types import _parse_datatype_string

    return _parse_datatype_string(schema)


def _save_mode(mode: SaveMode | str) -> SaveMode:
    try:
        return SaveMode(mode.lower().replace("errorifexists", "error"))
    except ValueError:
        raise ConfigError(f"mode is {mode!r}", "It can be error, overwrite or append.") from None
