"""TFRecords as a data source of Spark, without a jar and without TensorFlow.

    from tfos_core import tfrecords

    tfrecords.register(spark)                                     # Spark 4: format("tfrecord")
    spark.read.format("tfrecord").load("data")
    tfrecords.save_as_tfrecords(df, "data", mode="overwrite")     # every Spark
    tfrecords.load_tfrecords(spark, "data")

Importing this package imports neither pyspark nor TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_core.errors import EnvironmentCheckError
from tfos_core.tfrecords.dataframe import load_tfrecords, save_as_tfrecords
from tfos_core.tfrecords.errors import CorruptRecordError
from tfos_core.tfrecords.fields import RecordType
from tfos_core.tfrecords.writing import SaveMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("CorruptRecordError", "RecordType", "SaveMode", "load_tfrecords", "register", "save_as_tfrecords")


def register(spark: SparkSession) -> None:
    """Make `format("tfrecord")` known to this session.

    Raises:
        EnvironmentCheckError: this Spark has no Python data sources with Arrow writers (before 4.1).
    """
    try:
        from tfos_core.tfrecords.datasource import TFRecordSource
    except ImportError as exc:
        raise EnvironmentCheckError(
            f"Spark {spark.version} can not take format('tfrecord') from Python",
            "Use load_tfrecords and save_as_tfrecords of tfos_core.tfrecords, which do the same, or Spark 4.1 or later.",
        ) from exc
    spark.dataSource.register(TFRecordSource)
