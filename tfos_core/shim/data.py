"""What `data.path` of a spec names, as a DataFrame: csv, json, parquet, orc and text by Spark's readers, TFRecords by ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfos_core.errors import ConfigError, TfosError
from tfos_core.jobplan import DataPlan
from tfos_core.spark_errors import reason_of
from tfos_core.storage import StorageError
from tfos_core.tfrecords import load_tfrecords

__all__ = ("SCHEMA_OPTION", "fed_columns", "read_data")

#: Among `data.options`: not an option of Spark's readers, but what their `schema()` takes.
SCHEMA_OPTION = "schema"
#: Of exceptions that say what the user has to change. pyspark's classes; importing them for a check would cost the tests pyspark.
_USAGE = ("AnalysisException", "ParseException", "IllegalArgumentException")


def read_data(spark: Any, plan: DataPlan) -> Any:
    """The DataFrame of `plan.path`, with `plan.columns` only.

    Raises:
        ConfigError: it can not be read in that format, or has no such columns.
        CorruptRecordError: a sampled TFRecord is damaged.
        StorageError: its file system does not answer.
    """
    options = {name: value for name, value in plan.options.items() if name != SCHEMA_OPTION}
    schema = plan.options.get(SCHEMA_OPTION)
    try:
        if plan.format == "tfrecord":
            data = load_tfrecords(spark, str(plan.path), schema=schema, options=options)
        else:
            reader = spark.read.options(**options)
            reader = reader.schema(schema) if schema is not None else reader
            data = reader.format(plan.format).load(plan.path)
        return data.select(*plan.columns) if plan.columns else data
    except ConfigError as exc:
        raise ConfigError(f"data.path {plan.path!r} can not be read as {plan.format}: {exc.message}", exc.hint) from exc
    except TfosError:
        raise
    except Exception as exc:
        name, reason = type(exc).__name__, _first_line(exc)
        if name in _USAGE:
            raise ConfigError(
                f"data.path {plan.path!r} can not be read as {plan.format}: {reason}",
                "Check data.path, data.format, data.columns and data.options in the spec.",
            ) from exc
        if type(exc).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        # Reading the schema reads files: one that is of another format, or a file system that is down.
        raise StorageError(
            f"data.path {plan.path!r} can not be read as {plan.format}: {reason_of(exc)}",
            "Are the files of this format and whole, and does the file system answer?",
        ) from exc


def fed_columns(data: Any, mapping: Mapping[str, str] | None) -> Any:
    """Of a DataFrame only the columns that `mapping` names, in the order of their names: no others have to travel, or be tensors.

    Raises:
        ConfigError: it has no such columns.
    """
    if not mapping or not hasattr(data, "columns"):
        return data
    missing = sorted(set(mapping) - set(data.columns))
    if missing:
        raise ConfigError(
            f"data.input_mapping names {missing[0]!r}, and there is no such column", f"Columns are {', '.join(data.columns)}."
        )
    return data.select(*("`" + name.replace("`", "``") + "`" for name in sorted(mapping)))


def _first_line(exc: Exception) -> str:
    return str(exc).partition("\n")[0].partition(" SQLSTATE:")[0]
