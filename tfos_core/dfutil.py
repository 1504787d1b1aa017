"""TFRecords with the names and signatures of 2022, on top of `tfos_core.tfrecords`."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tfos_core.tfrecords.canonical import Feature, parse_record
from tfos_core.tfrecords.dataframe import load_tfrecords, save_as_tfrecords
from tfos_core.tfrecords.encode import encode
from tfos_core.tfrecords.fields import Kind, RecordType, fields_of
from tfos_core.tfrecords.spark_types import arrow_type

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

__all__ = ("fromTFExample", "infer_schema", "isLoadedDF", "loadTFRecords", "loadedDF", "saveAsTFRecords", "toTFExample")

#: Where DataFrames of `loadTFRecords` come from; one that nobody uses any more is forgotten.
loadedDF: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # noqa: N816
_BATCH_ROWS = 4096


def isLoadedDF(df: DataFrame) -> bool:  # noqa: N802
    """Whether `loadTFRecords` made this DataFrame."""
    return df in loadedDF


def saveAsTFRecords(df: DataFrame, output_dir: str) -> None:  # noqa: N802
    """Write a DataFrame as TFRecords of tf.train.Example into a folder that does not exist yet.

    Raises:
        ConfigError: the folder exists, or a column's type can not be written.
    """
    save_as_tfrecords(df, output_dir)


def loadTFRecords(sc: SparkContext, input_dir: str, binary_features: Sequence[str] = ()) -> DataFrame:  # noqa: N802
    """A DataFrame of TFRecords, its columns in the order of their names.

    Types are those that were written when `saveAsTFRecords` wrote the files, else they are found in a sample of all files.

    Args:
        binary_features: bytes features that are binary, not strings, whatever they hold.

    Raises:
        ConfigError: the folder does not exist, or its types can not be found.
        CorruptRecordError: a sampled record is damaged.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate() if sc is None else SparkSession(sc)
    df = load_tfrecords(spark, input_dir, options={"binaryFeatures": ",".join(binary_features)} if binary_features else {})
    df = df.select(*(f"`{name.replace('`', '``')}`" for name in sorted(df.columns)))
    loadedDF[df] = input_dir
    return df


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> ToTFExample:  # noqa: N802
    """A function for `df.rdd.mapPartitions` that makes serialised tf.train.Examples of rows.

    Args:
        dtypes: `df.dtypes`.
    """
    return ToTFExample(tuple(dtypes))


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = ()) -> list[Any]:  # noqa: N802, A002
    """Rows of serialised tf.train.Examples, given as pairs whose first member is the record.

    A feature with one value is a scalar, with several a list, with none null; bytes are strings unless named in `binary_features`.
    """
    from pyspark.sql import Row

    rows = []
    for record in iter:
        features = parse_record(bytes(record[0]), sequence=False).features
        values = {name.decode(): _value(feature, name.decode() in binary_features) for name, feature in features.items()}
        rows.append(Row(**dict(sorted(values.items()))))
    return rows


def infer_schema(example: Any, binary_features: Sequence[str] = ()) -> Any:
    """Spark's schema for one tf.train.Example; only what this record holds can be seen (`loadTFRecords` looks at many)."""
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType, StructField, StructType

    types = {Kind.INT64: LongType(), Kind.FLOAT: DoubleType(), Kind.BYTES: StringType(), Kind.NONE: StringType()}
    fields = []
    for name, feature in sorted(parse_record(example.SerializeToString(), sequence=False).features.items()):
        one = BinaryType() if name.decode() in binary_features else types[feature.kind if feature.values else Kind.NONE]
        fields.append(StructField(name.decode(), ArrayType(one) if len(feature.values) > 1 else one, True))
    return StructType(fields)


@dataclass(frozen=True, slots=True)
class ToTFExample:
    """Rows to pairs of a serialised tf.train.Example and None, as `saveAsNewAPIHadoopFile` wanted them."""

    dtypes: tuple[tuple[str, str], ...]

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[bytearray, None]]:
        schema = pa.schema([pa.field(name, arrow_type(dtype)) for name, dtype in self.dtypes])
        fields = fields_of(schema, RecordType.EXAMPLE)
        for batch in _batches(rows, schema):
            frames = encode(batch, fields)
            data = frames.data.tobytes()
            for start, end in zip(frames.starts.tolist(), np.add(frames.starts, frames.sizes).tolist(), strict=True):
                yield bytearray(data[start:end]), None


def _batches(rows: Iterable[Any], schema: Any) -> Iterator[Any]:
    waiting: list[Any] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == _BATCH_ROWS:
            yield _batch(waiting, schema)
            waiting = []
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: Sequence[Any], schema: Any) -> Any:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names], schema=schema
    )


def _value(feature: Feature, is_binary: bool) -> Any:
    values = feature.values
    if feature.kind is Kind.BYTES:
        values = [bytearray(value) if is_binary else value.decode() for value in values]
    if len(values) > 1:
        return values
    return values[0] if values else None
