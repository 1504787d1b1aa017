"""What `data` of a spec can name: every format through the shim's reader, TFRecord cases, and nodes that read for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tfos_core import dfutil, tfrecords
from tfos_core.context import TFNodeContext
from tfos_core.errors import ConfigError
from tfos_core.jobplan import DataPlan
from tfos_core.shim.usercode import load_data, load_fed_data
from tfos_core.storage import StorageError
from tfos_core.topology import Role

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("csv", "json", "parquet", "orc", "tfrecord")
ROWS = [(i, f"name {i}", i / 2) for i in range(10)]


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    yield SparkSession(sc)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.collect())


def write(df: DataFrame, format_: str, path: str) -> None:
    if format_ == "tfrecord":
        tfrecords.save_as_tfrecords(df, path)
    else:
        df.write.format(format_).option("header", "true").save(path)


# -- specs


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_is_read_with_its_columns(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    path = str(tmp_path / "data")
    write(spark.createDataFrame(ROWS, "id bigint, name string, x double"), format_, path)
    options = {"header": "true", "schema": "id bigint, name string, x double"} if format_ == "csv" else {}
    plan = DataPlan(path=path, format=format_, options=options, columns=("x", "id"))
    assert rows_of(load_data(spark, plan, None)) == sorted((x, i) for i, _, x in ROWS)
    mapped = load_fed_data(spark, DataPlan(path=path, format=format_, options=options, input_mapping={"name": "t"}), None)
    assert mapped.columns == ["name"]
    assert rows_of(mapped) == sorted((name,) for _, name, _ in ROWS)


def test_text_is_lines(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert rows_of(load_data(spark, DataPlan(path=str(tmp_path / "*.txt"), format="text"), None)) == [("one",), ("two",)]


@pytest.mark.parametrize("format_", ["parquet", "tfrecord"])
def test_what_can_not_be_read_is_named(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigError, match=f"data.path '{missing}' can not be read as {format_}"):
        load_data(spark, DataPlan(path=missing, format=format_), None)
    write(spark.createDataFrame(ROWS[:1], "id bigint, name string, x double"), format_, str(tmp_path / "data"))
    with pytest.raises(ConfigError, match="nope"):
        load_data(spark, DataPlan(path=str(tmp_path / "data"), format=format_, columns=("nope",)), None)
    (tmp_path / "text.parquet").write_text("no such file")
    if format_ == "parquet":
        with pytest.raises(StorageError, match=r"text\.parquet"):
            load_data(spark, DataPlan(path=str(tmp_path / "text.parquet"), format=format_), None)
    else:
        with pytest.raises(ConfigError, match="colour"):
            load_data(spark, DataPlan(path=str(tmp_path / "data"), format=format_, options={"colour": "red"}), None)


# -- cases of TFRecords


def examples(tf: Any, path: Path, *records: dict[str, list[int]]) -> str:
    path.mkdir()
    with tf.io.TFRecordWriter(str(path / "part")) as writer:
        for record in records:
            features = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=values)) for name, values in record.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return str(path)


def test_features_are_matched_by_name(tf: Any, sc: SparkContext, tmp_path: Path) -> None:
    df = dfutil.loadTFRecords(sc, examples(tf, tmp_path / "in", {"a": [1], "b": [2]}, {"b": [20], "c": [30]}))
    assert [row.asDict() for row in df.sort("b").collect()] == [{"a": 1, "b": 2, "c": None}, {"a": None, "b": 20, "c": 30}]


def test_the_first_record_does_not_say_what_all_are(tf: Any, sc: SparkContext, tmp_path: Path) -> None:
    df = dfutil.loadTFRecords(sc, examples(tf, tmp_path / "in", {"a": [1]}, {"a": [2, 3]}, {"a": [4, 5]}))
    assert df.dtypes == [("a", "array<bigint>")]
    assert sorted(row.a for row in df.collect()) == [[1], [2, 3], [4, 5]]


def test_a_list_of_one_element_stays_a_list(spark: SparkSession, sc: SparkContext, tmp_path: Path) -> None:
    dfutil.saveAsTFRecords(spark.createDataFrame([([5],)], "a array<bigint>"), str(tmp_path / "out"))
    df = dfutil.loadTFRecords(sc, str(tmp_path / "out"))
    assert (df.dtypes, df.collect()[0].a) == ([("a", "array<bigint>")], [5])


def test_an_empty_input_has_its_schema_or_an_error_that_says_so(
    tf: Any, spark: SparkSession, sc: SparkContext, tmp_path: Path
) -> None:
    dfutil.saveAsTFRecords(spark.createDataFrame([], "a bigint, b string"), str(tmp_path / "out"))
    df = dfutil.loadTFRecords(sc, str(tmp_path / "out"))
    assert (df.dtypes, df.count()) == ([("a", "bigint"), ("b", "string")], 0)
    with pytest.raises(ConfigError, match="no records"):
        dfutil.loadTFRecords(sc, examples(tf, tmp_path / "in"))


def test_nulls_are_features_that_are_not_there(tf: Any, spark: SparkSession, sc: SparkContext, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    rows = [(None, None, None), (1, 0.5, bytearray(b"\xff"))]
    dfutil.saveAsTFRecords(spark.createDataFrame(rows, "i bigint, f float, raw binary").coalesce(1), path)
    files = [str(file) for file in Path(path).glob("part-*")]
    (first, _) = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]
    assert not first.features.feature
    df = dfutil.loadTFRecords(sc, path, binary_features=["raw"])
    assert rows_of(df.select("i", "f", "raw").where("i is null")) == [(None, None, None)]
    assert rows_of(df.select("i", "f", "raw").where("i is not null")) == [rows[1]]


# -- nodes that read for themselves


def context(index: int, nodes: int, **data: Any) -> TFNodeContext:
    spec = {"worker": [f"w:{number}" for number in range(nodes)]}
    return TFNodeContext(executor_id=index, role=Role.WORKER, index=index, cluster_spec=spec, data=data)


def test_a_dataset_has_whole_batches_of_every_row_once(tf: Any, tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([[i, i + 1] for i in range(1003)], pa.list_(pa.float32())), "y": pa.array(range(1003))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    labels: list[int] = []
    for index in range(2):
        dataset = context(index, 2, path=str(tmp_path / "a.parquet")).dataset(64, columns=["x", "y"])
        assert dataset.cardinality().numpy() == tf.data.UNKNOWN_CARDINALITY
        assert dataset.options().experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.OFF
        assert dataset.options().autotune.enabled is False
        batches = list(dataset)
        assert {len(y) for _, y in batches[:-1]} == {64}
        assert batches[0][0].shape == (64, 2) and batches[0][0].dtype == tf.float32
        assert len(list(dataset)) == len(batches), "one pass is one epoch"
        labels += [int(value) for _, y in batches for value in y]
    assert labels == list(range(1003))
    dropped = context(0, 1, path=str(tmp_path), format="parquet", input_mapping={"y": "label"}).dataset(64, drop_remainder=True)
    assert dropped.element_spec["label"].shape == (64,)
    assert len(list(dropped)) == 1003 // 64


def test_what_a_pass_finds_names_the_file(tf: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([3, None], pa.int64())}), tmp_path / "b.parquet")
    dataset = context(0, 1, path=str(tmp_path)).dataset(2)
    with pytest.raises(tf.errors.OpError, match=r"b\.parquet: column 'x' holds nulls"):
        list(dataset)
