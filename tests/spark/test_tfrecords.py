"""DataFrames to TFRecords and back on real executors, and files that TensorFlow reads and writes."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfos_core import dfutil, tfrecords
from tfos_core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "i int, l bigint, b boolean, f float, d double, s string, raw binary, money decimal(10,2), day date, at timestamp, "
    "wall timestamp_ntz, floats array<float>, strings array<string>, ints array<int>, flags array<boolean>"
)
NOW = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)  # noqa: DTZ001 - as Spark has it, in the session's time zone
ROWS = [
    (
        1,
        2**40,
        True,
        1.5,
        2.5,
        "ä",
        bytearray(b"\x00\xff"),
        Decimal("1.50"),
        NOW.date(),
        NOW,
        NOW,
        [1.0, 2.0],
        ["a", ""],
        [5],
        [True],
    ),
    (None,) * 15,
    (0, -1, False, 0.0, 0.0, "", bytearray(), Decimal("-0.05"), NOW.date(), NOW, NOW, [], [], [], []),
]


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = SparkSession(sc)
    if hasattr(session, "dataSource"):
        tfrecords.register(session)
    yield session


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, COLUMNS)


def needs_sources(spark: SparkSession) -> None:
    if not hasattr(spark, "dataSource"):
        pytest.skip("this Spark has no Python data sources")


def rows_of(df: DataFrame) -> list[str]:
    return sorted(map(str, df.collect()))


def data_files(path: Path) -> list[str]:
    return sorted(str(file) for file in path.rglob("part-*"))


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_what_was_written_comes_back_with_its_types(df: DataFrame, spark: SparkSession, tmp_path: Path, compression: str) -> None:
    path = str(tmp_path / "out")
    assert tfrecords.save_as_tfrecords(df, path, options={"compression": compression}) == 3
    back = tfrecords.load_tfrecords(spark, path)
    assert back.dtypes == df.dtypes
    assert rows_of(back) == rows_of(df)


def test_the_format_reads_and_writes_the_same(df: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    needs_sources(spark)
    path = str(tmp_path / "out")
    df.write.format("tfrecord").mode("append").save(path)
    df.write.format("tfrecord").mode("append").option("compression", "gzip").save(path)
    back = spark.read.format("tfrecord").load(path)
    assert back.dtypes == df.dtypes
    assert rows_of(back) == rows_of(df.union(df))
    df.write.format("tfrecord").mode("overwrite").save(path)
    assert rows_of(spark.read.format("tfrecord").load(path)) == rows_of(df)
    with pytest.raises(Exception, match="already exists"):
        df.write.format("tfrecord").mode("append").option("ifExists", "error").save(path)


def test_sequence_examples_and_byte_arrays(spark: SparkSession, tmp_path: Path) -> None:
    nested = spark.createDataFrame([(1, [[1, 2], []]), (2, None), (3, [])], "id int, steps array<array<int>>")
    tfrecords.save_as_tfrecords(nested, str(tmp_path / "seq"), options={"recordType": "SequenceExample"})
    assert rows_of(tfrecords.load_tfrecords(spark, str(tmp_path / "seq"))) == rows_of(nested)
    raw = spark.createDataFrame([(bytearray(b"one"),), (bytearray(),)], "byteArray binary")
    tfrecords.save_as_tfrecords(raw, str(tmp_path / "raw"), options={"recordType": "ByteArray"})
    assert rows_of(tfrecords.load_tfrecords(spark, str(tmp_path / "raw"))) == rows_of(raw)


def test_partition_columns_are_folders_and_keep_their_types(df: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "out"
    tfrecords.save_as_tfrecords(df, str(path), options={"partitionBy": "day,i"})
    assert (path / "day=2024-02-29" / "i=1").is_dir()
    back = tfrecords.load_tfrecords(spark, str(path))
    assert rows_of(back.select(df.columns)) == rows_of(df)
    assert dict(back.dtypes) == dict(df.dtypes)
    part = tfrecords.load_tfrecords(spark, str(path / "day=2024-02-29" / "i=1"))
    assert [(row.i, row.day, row.l) for row in part.collect()] == [(1, NOW.date(), 2**40)]


def test_an_empty_dataframe_comes_back_with_its_columns(df: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    tfrecords.save_as_tfrecords(df.limit(0), str(tmp_path / "out"))
    back = tfrecords.load_tfrecords(spark, str(tmp_path / "out"))
    assert (back.dtypes, back.count()) == (df.dtypes, 0)


def test_an_existing_output_is_refused_before_a_row_is_computed(df: DataFrame, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        tfrecords.save_as_tfrecords(df, str(tmp_path / "out"))


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    bad = spark.range(0, 100, 1, 4).selectExpr("id", "if(id = 99, 1e300, 0.0D) as x")
    with pytest.raises(Exception, match="1e\\+300"):
        tfrecords.save_as_tfrecords(bad, str(tmp_path / "out"))
    if hasattr(spark, "dataSource"):
        with pytest.raises(Exception, match="1e\\+300"):
            bad.write.format("tfrecord").mode("overwrite").save(str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_overwrite_leaves_what_was_there(df: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    tfrecords.save_as_tfrecords(df, path)
    bad = spark.createDataFrame([(1e300,)], "x double")
    with pytest.raises(Exception, match="1e\\+300"):
        tfrecords.save_as_tfrecords(bad, path, mode="overwrite")
    assert rows_of(tfrecords.load_tfrecords(spark, path)) == rows_of(df)


def test_damaged_records_fail_with_file_and_offset_or_become_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "out"
    tfrecords.save_as_tfrecords(spark.range(0, 10, 1, 1), str(path))
    (file,) = data_files(path)
    data = bytearray(Path(file).read_bytes())
    data[15] ^= 1
    Path(file).write_bytes(data)
    with pytest.raises(Exception, match=f"{file}: the record at byte 0"):
        tfrecords.load_tfrecords(spark, str(path)).collect()
    permissive = {"mode": "PERMISSIVE"}
    assert tfrecords.load_tfrecords(spark, str(path), options=permissive).count() == 9
    marked = tfrecords.load_tfrecords(spark, str(path), schema="id bigint, _corrupt_record string", options=permissive)
    assert marked.where("_corrupt_record is not null").count() == 1
    assert marked.count() == 10


def test_dfutil_keeps_its_names_and_forms(df: DataFrame, sc: SparkContext, tmp_path: Path, tf: Any) -> None:
    path = str(tmp_path / "out")
    dfutil.saveAsTFRecords(df, path)
    loaded = dfutil.loadTFRecords(sc, path)
    assert loaded.columns == sorted(df.columns)
    assert rows_of(loaded.select(df.columns)) == rows_of(df)
    assert (dfutil.isLoadedDF(loaded), dfutil.isLoadedDF(df)) == (True, False)
    chosen = df.where("i is not null").select("i", "s", "raw", "floats")
    records = chosen.rdd.mapPartitions(dfutil.toTFExample(chosen.dtypes)).collect()
    rows = dfutil.fromTFExample(records, binary_features=["raw"])
    assert [row.asDict() for row in rows] == [
        {"floats": [1.0, 2.0], "i": 1, "raw": bytearray(b"\x00\xff"), "s": "ä"},
        {"floats": None, "i": 0, "raw": bytearray(), "s": ""},
    ]
    example = tf.train.Example.FromString(bytes(records[0][0]))
    assert dfutil.infer_schema(example, ["raw"]).simpleString() == "struct<floats:array<double>,i:bigint,raw:binary,s:string>"


# -- TensorFlow


@pytest.mark.parametrize(("compression", "name"), [("none", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_tensorflow_parses_what_we_write(df: DataFrame, tmp_path: Path, tf: Any, compression: str, name: str) -> None:
    tfrecords.save_as_tfrecords(df.coalesce(1), str(tmp_path / "out"), options={"compression": compression})
    features = {
        "i": tf.io.FixedLenFeature([], tf.int64, -7),
        "l": tf.io.FixedLenFeature([], tf.int64, -7),
        "d": tf.io.FixedLenFeature([], tf.float32, -7.0),
        "s": tf.io.FixedLenFeature([], tf.string, "none"),
        "money": tf.io.FixedLenFeature([], tf.string, "none"),
        "floats": tf.io.VarLenFeature(tf.float32),
        "strings": tf.io.RaggedFeature(tf.string),
    }
    # TensorFlow checks both checksums of every record.
    records = tf.data.TFRecordDataset(data_files(tmp_path / "out"), compression_type=name)
    parsed = next(iter(records.batch(3).map(lambda batch: tf.io.parse_example(batch, features))))
    assert parsed["i"].numpy().tolist() == [1, -7, 0]
    assert parsed["l"].numpy().tolist() == [2**40, -7, -1]
    assert parsed["d"].numpy().tolist() == [2.5, -7.0, 0.0]
    assert parsed["s"].numpy().tolist() == ["ä".encode(), b"none", b""]
    assert parsed["money"].numpy().tolist() == [b"1.50", b"none", b"-0.05"]
    assert tf.sparse.to_dense(parsed["floats"]).numpy().tolist() == [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    assert parsed["strings"].to_list() == [[b"a", b""], [], []]


def test_records_are_the_bytes_that_protobuf_writes(spark: SparkSession, tmp_path: Path, tf: Any) -> None:
    one = spark.createDataFrame([([1.5, -2.0],), ([],)], "x array<float>").coalesce(1)
    tfrecords.save_as_tfrecords(one, str(tmp_path / "ours"))
    theirs = str(tmp_path / "theirs")
    with tf.io.TFRecordWriter(theirs) as writer:
        for values in ([1.5, -2.0], []):
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=values))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString())
    (ours,) = data_files(tmp_path / "ours")
    assert Path(ours).read_bytes() == Path(theirs).read_bytes()


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_we_read_what_tensorflow_writes(spark: SparkSession, tmp_path: Path, tf: Any, compression: str) -> None:
    rows = [{"a": [-1], "b": [0.5, 1.5], "c": [b"x"]}, {"c": [b"y"], "a": [2**62]}, {"b": [2.5], "a": []}]
    lists = {
        "a": ("int64_list", tf.train.Int64List),
        "b": ("float_list", tf.train.FloatList),
        "c": ("bytes_list", tf.train.BytesList),
    }
    (tmp_path / "in").mkdir()
    for number, row in enumerate(rows):
        with tf.io.TFRecordWriter(str(tmp_path / "in" / f"{number}.tfrecord"), compression) as writer:
            feature = {name: tf.train.Feature(**{lists[name][0]: lists[name][1](value=values)}) for name, values in row.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    back = tfrecords.load_tfrecords(spark, str(tmp_path / "in"))
    assert back.dtypes == [("a", "bigint"), ("b", "array<float>"), ("c", "string")]
    assert sorted((row.a or 0, row.b, row.c) for row in back.collect()) == [
        (-1, [0.5, 1.5], "x"),
        (0, [2.5], None),
        (2**62, None, "y"),
    ]


def test_sequence_examples_agree_with_tensorflow_both_ways(spark: SparkSession, tmp_path: Path, tf: Any) -> None:
    nested = spark.createDataFrame([(7, [[1, 2], [], [3]])], "id bigint, steps array<array<bigint>>").coalesce(1)
    options = {"recordType": "SequenceExample"}
    tfrecords.save_as_tfrecords(nested, str(tmp_path / "ours"), options=options)
    (record,) = tf.data.TFRecordDataset(data_files(tmp_path / "ours"))
    context, lists = tf.io.parse_single_sequence_example(
        record, {"id": tf.io.FixedLenFeature([], tf.int64)}, {"steps": tf.io.RaggedFeature(tf.int64)}
    )
    assert (int(context["id"]), lists["steps"].to_list()) == (7, [[1, 2], [], [3]])
    message = tf.train.SequenceExample.FromString(record.numpy())
    (tmp_path / "theirs").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "theirs" / "a")) as writer:
        writer.write(message.SerializeToString())
    assert tfrecords.load_tfrecords(spark, str(tmp_path / "theirs"), options=options).collect() == nested.collect()
