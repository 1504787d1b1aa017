"""Everything on HDFS: a real NameNode and DataNode hold data, checkpoints, models, event files and predictions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from testbed.hadoop_jars import NoHadoopError, hadoop_jars
from testbed.hdfs import HdfsCluster
from testbed.spark_context import start_context

from tfos_core import tfrecords
from tfos_core.direct.request import DataRequest, plan_share
from tfos_core.direct.shares import Shard
from tfos_core.errors import ConfigError
from tfos_core.storage import StorageError, fetch, publish, storage_of

if TYPE_CHECKING:
    from tests.conftest import RunLine

pytest.importorskip("hdfs_native", reason="the extra tfos[hdfs] is not installed")
ROOT = Path(__file__).parents[2]
SPEC = ROOT / "jobspecs" / "digits_tfrecord.yaml"
DATA = ROOT / "jobspecs" / "data" / "digits_tfrecord"
LONGEST_S = 240

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def hdfs() -> Iterator[str]:
    """The URL of an empty HDFS."""
    try:
        jars = hadoop_jars()
    except NoHadoopError as exc:
        pytest.skip(str(exc))
    with HdfsCluster(jars) as cluster:
        yield cluster.url


@pytest.fixture(scope="module")
def digits(hdfs: str) -> str:
    """The folder with the images: TFRecords as they are shipped, and the same training images as Parquet."""
    publish(DATA, f"{hdfs}/digits")
    rows = plan_share(DataRequest(path=str(DATA / "train"), columns=["image", "label"]))()
    images, labels = zip(*rows, strict=True)
    columns = {
        "image": pa.array([image.tolist() for block in images for image in block], pa.list_(pa.float32())),
        "label": pa.array([int(label) for block in labels for label in block], pa.int64()),
    }
    table = pa.table(columns)
    # Spark makes a partition of one or two small files: enough for both nodes.
    for number in range(4):
        with storage_of(hdfs).open_output(f"{hdfs}/digits/parquet/{number}.parquet") as file:
            pq.write_table(table.slice(number * 360, 360), file)
    return f"{hdfs}/digits"


def below(url: str, *, hidden: bool = True) -> list[str]:
    return [entry.below for entry in storage_of(url).files_below(url, hidden=hidden)]


def read_table(url: str) -> Any:
    tables = []
    for entry in storage_of(url).files_below(url):
        with storage_of(url).open_input(entry.path) as file:
            tables.append(pq.read_table(file))
    return pa.concat_tables(tables)


def test_folders_are_published_replaced_and_fetched_whole(hdfs: str, tmp_path: Path) -> None:
    source = tmp_path / "model"
    (source / "variables").mkdir(parents=True)
    (source / "variables" / "v").write_bytes(b"x" * 10_000_000)
    (source / "empty").write_bytes(b"")
    target = f"{hdfs}/published/deep/model"
    for _ in range(2):
        assert publish(source, target) == target
        (source / "empty").rename(source / "other") if (source / "empty").exists() else None
    assert below(f"{hdfs}/published") == ["deep/model/other", "deep/model/variables/v"]
    back = Path(fetch(target, tmp_path / "back"))
    assert (back / "variables" / "v").read_bytes() == b"x" * 10_000_000


def test_what_is_not_there_or_does_not_answer_is_an_error_that_names_it(hdfs: str, tmp_path: Path) -> None:
    storage = storage_of(hdfs)
    assert not storage.exists(f"{hdfs}/nothing")
    with pytest.raises(FileNotFoundError, match=f"{hdfs}/nothing"):
        storage.open_input(f"{hdfs}/nothing")
    with pytest.raises(ConfigError, match=f"nothing at {hdfs}/nothing"):
        fetch(f"{hdfs}/nothing", tmp_path / "x")
    with pytest.raises(StorageError, match=r"hdfs://127\.0\.0\.1:1/x"):
        storage_of("hdfs://127.0.0.1:1/x").exists("hdfs://127.0.0.1:1/x")


def test_spark_writes_tfrecords_there_and_every_reader_finds_them(hdfs: str) -> None:
    from pyspark.sql import SparkSession

    path = f"{hdfs}/records"
    with start_context("local-cluster[2,1,1024]") as sc:
        spark = SparkSession(sc)
        df = spark.createDataFrame([(i, [i / 2, i / 4], i % 2) for i in range(1000)], "id bigint, x array<float>, p int")
        options = {"compression": "gzip", "partitionBy": "p"}
        assert tfrecords.save_as_tfrecords(df.repartition(3), path, options=options) == 1000
        with pytest.raises(ConfigError, match="already exists"):
            tfrecords.save_as_tfrecords(df, path)
        back = tfrecords.load_tfrecords(spark, path)
        assert back.dtypes == df.dtypes
        assert sorted(map(str, back.collect())) == sorted(map(str, df.collect()))
        assert tfrecords.load_tfrecords(spark, f"{hdfs}/{{records,none}}/p=*").count() == 1000
        if hasattr(spark, "dataSource"):
            tfrecords.register(spark)
            df.write.format("tfrecord").mode("append").option("partitionBy", "p").save(path)
            assert spark.read.format("tfrecord").load(path).count() == 2000
            df.write.format("tfrecord").mode("overwrite").save(path)
            assert spark.read.format("tfrecord").load(path).count() == 1000
    assert [name for name in below(f"{hdfs}/") if "tfos-" in name] == []
    ids = [
        int(value)
        for index in range(3)
        for block in plan_share(DataRequest(path=path, columns=["id"], format="tfrecord", shard=Shard(index=index, count=3)))()
        for value in block
    ]
    assert sorted(ids) == list(range(1000))


@pytest.mark.parametrize("mode", ["tensorflow", "spark"])
def test_the_digits_are_trained_and_judged_there(hdfs: str, digits: str, mode: str, run_line: RunLine) -> None:
    out = f"{hdfs}/{mode}"
    values = {
        "input_mode": mode,
        "num_epochs": 10,
        "data.path": f"{digits}/train" if mode == "tensorflow" else f"{digits}/parquet",
        "data.format": "tfrecord" if mode == "tensorflow" else "parquet",
        "args.test_data": f"{digits}/test",
        "args.export_dir": f"{out}/model",
        "args.checkpoint_dir": f"{out}/checkpoints",
        "tensorboard.log_dir": f"{out}/logs",
    }
    line = ["tfos", "train", str(SPEC), *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]
    outcome = run_line(line, fresh=True, timeout_s=LONGEST_S)
    (correct,) = re.findall(r"test accuracy [0-9.]+ \((\d+) of 364 images\)", outcome.stdout)
    assert int(correct) >= 0.9 * 364
    assert f"{out}/model" in outcome.stdout
    files = below(out)
    assert "model/saved_model.pb" in files
    assert any(re.fullmatch(r"model/variables/variables\.data.*", name) for name in files)
    numbers = sorted({match[1] for name in files if (match := re.match(r"checkpoints/[^/]+/checkpoint-(\d+)/progress.json", name))})
    assert numbers == ["000009", "000010"], "the last two are kept"
    assert any(re.fullmatch(r"logs/chief-0/.*tfevents.*", name) for name in files)
    assert [name for name in files if "/." in f"/{name}"] == [], "nothing that is half written is left"
    _infer(run_line, digits, out, int(correct))


def _infer(run_line: RunLine, digits: str, out: str, correct: int) -> None:
    """Predictions of the exported model on the test images, all on HDFS, are as good as training said."""
    infer = {
        "infer.export_dir": f"{out}/model",
        "infer.keep": "[label]",
        "infer.output.path": f"{out}/predictions",
        "data.path": f"{digits}/test",
        "data.columns": "null",
    }
    line = ["tfos", "infer", str(SPEC), *(word for key, value in infer.items() for word in ("--set", f"{key}={value}"))]
    run_line(line, fresh=True, timeout_s=LONGEST_S)
    table = read_table(f"{out}/predictions")
    assert table.num_rows == 364
    (name,) = set(table.column_names) - {"label"}
    best = [max(range(10), key=row.__getitem__) for row in table.column(name).to_pylist()]
    assert sum(a == b for a, b in zip(best, table.column("label").to_pylist(), strict=True)) == correct
