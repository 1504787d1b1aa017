"""From the user's RDD or DataFrame to the RDD of feed tasks: which way its rows travel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfos_core.column_names import with_plain_names
from tfos_core.errors import ConfigError
from tfos_core.feed.tasks import FeedArrow, FeedFrames, FeedRows, InferFrames, InferRows, Outcome, Target

__all__ = ("batch_settings", "feed_rdd", "inference_rdd", "is_raw", "outcomes")

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_SAMPLE_ROWS = 20


def feed_rdd(data: Any, target: Target) -> Any:
    """The RDD whose tasks feed `data`; `outcomes` runs them.

    Raises:
        ConfigError: `data` is neither an RDD nor a DataFrame of a SparkContext, or holds columns that can not be fed.
    """
    from pyspark.sql import DataFrame

    if _is_connect(data):
        raise _connect_error()
    if isinstance(data, DataFrame):
        return _dataframe_rdd(data, target)
    rdd = _checked_rdd(data, "train")
    if is_raw(rdd):
        return _frames(rdd).mapPartitions(FeedFrames(target=target))
    return rdd.mapPartitions(FeedRows(target=target))


def outcomes(rdd: Any) -> list[Outcome]:
    """Run the tasks of a `feed_rdd`: what became of each partition."""
    # Those of a DataFrame answer with a row of one column. Taking it out here, and not with `map`, saves a second Python worker.
    return [Outcome.from_json(found if isinstance(found, str) else found[0]) for found in rdd.collect()]


def inference_rdd(data: Any, target: Target, reporter: Any = None) -> Any:
    """The lazy RDD of results, one per row of `data` and in its order; `reporter` is told of every partition that is done.

    Raises:
        ConfigError: `data` is not an RDD or DataFrame of a SparkContext.
    """
    from pyspark.sql import DataFrame

    if _is_connect(data):
        raise _connect_error()
    rdd = _row_rdd(data) if isinstance(data, DataFrame) else _checked_rdd(data, "inference")
    if is_raw(rdd):
        return _frames(rdd).mapPartitions(InferFrames(target=target, reporter=reporter))
    return rdd.mapPartitions(InferRows(target=target, reporter=reporter))


def _row_rdd(df: Any) -> Any:
    """Rows of a DataFrame with bytes in binary columns, where the JVM's pickle has bytearrays."""
    from pyspark.sql.types import BinaryType

    binary = tuple(place for place, field in enumerate(df.schema.fields) if isinstance(field.dataType, BinaryType))
    return df.rdd.map(_WithBytes(binary)) if binary else df.rdd


@dataclass(frozen=True, slots=True)
class _WithBytes:
    places: tuple[int, ...]

    def __call__(self, row: Any) -> Any:
        from pyspark.sql import Row

        values = list(row)
        for place in self.places:
            if values[place] is not None:
                values[place] = bytes(values[place])
        return Row(*row.__fields__)(*values)


def is_raw(rdd: Any) -> bool:
    """Whether the JVM holds the RDD's rows as pickled batches, so that they can go through unread."""
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CloudPickleSerializer, CPickleSerializer

    if isinstance(rdd, _pipelined_class()) and rdd._is_pipelinable():
        return False
    serializer = rdd._jrdd_deserializer
    # Exactly these two: subclasses such as FlattenedValuesSerializer put something else into a frame.
    if type(serializer) not in (BatchedSerializer, AutoBatchedSerializer):
        return False
    return isinstance(serializer.serializer, CPickleSerializer | CloudPickleSerializer)


def _pipelined_class() -> Any:
    try:
        from pyspark.core.rdd import PipelinedRDD
    except ImportError:  # pyspark 3.5
        from pyspark.rdd import PipelinedRDD
    return PipelinedRDD


def _frames(rdd: Any) -> Any:
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    return RDD(rdd._jrdd, rdd.ctx, NoOpSerializer())


def _checked_rdd(data: Any, method: str) -> Any:
    from pyspark import RDD

    if isinstance(data, RDD):
        return data
    raise ConfigError(
        f"{method}() takes an RDD or a DataFrame, not {type(data).__module__}.{type(data).__qualname__}",
        "Make an RDD with sc.parallelize(rows) or a DataFrame with spark.createDataFrame(rows).",
    )


def _is_connect(data: Any) -> bool:
    return type(data).__module__.startswith("pyspark.sql.connect")


def _connect_error() -> ConfigError:
    return ConfigError(
        "a DataFrame of Spark Connect can not be fed: its client has no SparkContext",
        "Start the program with spark-submit (or a master URL) instead of a remote (sc://) session.",
    )


def _dataframe_rdd(df: Any, target: Target) -> Any:
    _check_columns(df)
    session = df.sparkSession
    plain, names = with_plain_names(df)
    with batch_settings(session, df, target.block_bytes):
        # Taken as an RDD once: adaptive execution fixes the number of partitions here, and every epoch runs this RDD.
        rdd = plain.mapInArrow(FeedArrow(target=target, names=names).__call__, "outcome string").rdd
        rdd.getNumPartitions()
    return rdd


def _check_columns(df: Any) -> None:
    from pyspark.sql.types import UserDefinedType

    for field in df.schema.fields:
        if not isinstance(field.dataType, UserDefinedType):
            continue
        if field.dataType.typeName() in ("vector", "vectorudt"):
            raise ConfigError(
                f"column {field.name!r} holds ML vectors, which can not be fed",
                f"Convert it first: df.withColumn({field.name!r}, pyspark.ml.functions.vector_to_array({field.name!r})).",
            )
        raise ConfigError(f"column {field.name!r} has the user-defined type {field.dataType.typeName()}, which can not be fed")


@contextlib.contextmanager
def batch_settings(session: Any, df: Any, block_bytes: int) -> Iterator[None]:
    """Bound the bytes of one Arrow batch for this query only: 10,000 rows (the default) of 600 KB are 6 GB.

    A Spark that bounds them itself (64 MB by default) is left alone: a sample is a Spark job of its own, which costs more than
    feeding some MB.
    """
    conf = session.conf
    if _is_bounded(conf):
        yield
        return
    before = conf.get(_RECORDS)
    # `get` gives the default for what was never set, and setting the default again would hide a later change of it.
    explicit = session._jsparkSession.sessionState().conf().contains(_RECORDS)
    conf.set(_RECORDS, str(_records_per_batch(df, block_bytes, int(before))))
    try:
        yield
    finally:
        if explicit:
            conf.set(_RECORDS, before)
        else:
            conf.unset(_RECORDS)


def _is_bounded(conf: Any) -> bool:
    """Whether this Spark limits the bytes of an Arrow batch (since 4.0; the limit can not be switched off)."""
    try:
        # Without a default of ours: then Spark's own is the answer, and an older one raises.
        return bool(conf.get(_BYTES))
    except Exception:  # noqa: BLE001 - another class in every version of Spark
        return False


def _records_per_batch(df: Any, block_bytes: int, limit: int) -> int:
    """Rows that fill 8 blocks, from a sample where the schema leaves the size of a row open."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    if not any(
        isinstance(field.dataType, ArrayType | BinaryType | MapType | StringType | StructType) for field in df.schema.fields
    ):
        return limit if limit > 0 else 10_000
    sample = df.limit(_SAMPLE_ROWS).toPandas()
    if not len(sample):
        return limit if limit > 0 else 10_000
    import pyarrow as pa

    bytes_per_row = max(1, pa.Table.from_pandas(sample, preserve_index=False).nbytes // len(sample))
    most = max(1, 8 * block_bytes // bytes_per_row)
    return int(min(most, limit) if limit > 0 else most)
