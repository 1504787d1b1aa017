"""Rows a second of TFRecords: ours against one tf.train.Example for each row, in alternating rounds of one run.

    python benchmarks/tfrecords.py [--rounds 5] [--rows 200000] [--no-spark]

A row has a bigint, a double, a string and an array of 100 floats. Two comparisons:

* the codec alone, in this process: an Arrow batch to a file and back, against Python code that makes a tf.train.Example for each
  row and hands it to TFRecordWriter, and parses each record of a TFRecordDataset;
* Spark, on `local-cluster[2,1,2048]`: a cached DataFrame to a folder and back to `noop`, against `dfutil` of TensorFlowOnSpark
  2.2.5 with its jar, and against the same Python code in `rdd.mapPartitions`, where TensorFlow writes and reads the files: what
  there is without the jar, and faster than dfutil.

The first round of each side warms up and is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from report import Measurement, measure, print_table, write_results
from session import MASTER, start_spark
from upstream import FOLDER, Upstream
from upstream_dfutil import hadoop_jar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
FLOATS = 100
TYPES = "id bigint, label double, name string, x array<float>"


def main() -> None:
    """Run both comparisons, print a table for each, and write the results."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="tfrecords-") as folder:
        measurements = _codec(options, Path(folder))
        if options.spark:
            measurements += _spark(options, Path(folder))
    print(f"\nwritten: {write_results('tfrecords', measurements, master=MASTER, **vars(options))}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of our side; the other has a tenth (default 200000)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the DataFrame (default 4)")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="the codec only")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    return parser.parse_args()


def make_batch(rows: int) -> Any:
    """The data, always the same."""
    random = np.random.default_rng(1)
    numbers = pa.array(random.random(rows * FLOATS, dtype=np.float32))
    return pa.record_batch(
        {
            "id": pa.array(np.arange(rows)),
            "label": pa.array(random.random(rows)),
            "name": pa.array([f"name {number}" for number in range(rows)]),
            "x": pa.ListArray.from_arrays(pa.array(np.arange(0, rows * FLOATS + 1, FLOATS, dtype=np.int32)), numbers),
        }
    )


def _codec(options: argparse.Namespace, folder: Path) -> list[Measurement]:
    ours, theirs = make_batch(options.rows), make_batch(options.rows // 10)
    our_file, their_file = str(folder / "ours"), str(folder / "theirs")
    rows = theirs.to_pylist()
    sides: dict[str, Callable[[], float]] = {
        "write, one Example a row": lambda: theirs.num_rows / _seconds(write_examples, rows, their_file),
        "write, ours": lambda: ours.num_rows / _seconds(_write_ours, ours, our_file),
        "read, one Example a row": lambda: theirs.num_rows / _seconds(_exhaust, read_examples([their_file])),
        "read, ours": lambda: ours.num_rows / _seconds(_read_ours, our_file, ours.schema),
    }
    return _compare("codec", sides, options.rounds)


def _spark(options: argparse.Namespace, folder: Path) -> list[Measurement]:
    from tfos_core import tfrecords

    with start_spark() as spark, contextlib.ExitStack() as stack:
        data = {
            name: spark.createDataFrame(make_batch(rows).to_pandas(), TYPES).repartition(options.partitions).cache()
            for name, rows in (("ours", options.rows), ("theirs", options.rows // 10))
        }
        counts = {name: df.count() for name, df in data.items()}
        ours, theirs = folder / "spark-ours", folder / "spark-theirs"

        def write_theirs() -> None:
            shutil.rmtree(theirs, ignore_errors=True)
            theirs.mkdir()
            data["theirs"].rdd.mapPartitionsWithIndex(WriteExamples(str(theirs))).count()

        def read_theirs() -> None:
            files = sorted(map(str, theirs.iterdir()))
            rdd = spark.sparkContext.parallelize(files, len(files)).mapPartitions(read_examples)
            _drain(spark.createDataFrame(rdd, "id bigint, label double, name string, x array<double>"))

        sides: dict[str, Callable[[], float]] = {
            "write, one Example a row": lambda: counts["theirs"] / _seconds(write_theirs),
            "write, ours": lambda: (
                counts["ours"] / _seconds(tfrecords.save_as_tfrecords, data["ours"], str(ours), mode="overwrite")
            ),
            "read, one Example a row": lambda: counts["theirs"] / _seconds(read_theirs),
            "read, ours": lambda: counts["ours"] / _seconds(lambda: _drain(tfrecords.load_tfrecords(spark, str(ours)))),
        }
        if hasattr(spark, "dataSource"):
            tfrecords.register(spark)
            sides["read, ours, format"] = lambda: (
                counts["ours"] / _seconds(lambda: _drain(spark.read.format("tfrecord").load(str(ours))))
            )
        jar = hadoop_jar(FOLDER / "jars") if options.upstream else None
        if jar is not None:
            rows = options.rows // 10
            theirs_round = stack.enter_context(
                Upstream("tfrecords", "--rows", f"{rows}", "--partitions", f"{options.partitions}", "--jar", f"{jar}")
            ).round
            last: dict[str, float] = {}

            def write_upstream() -> float:
                last.update(theirs_round())
                return rows / last["write"]

            sides |= {"write, 2.2.5": write_upstream, "read, 2.2.5": lambda: rows / last["read"]}
        return _compare("Spark", sides, options.rounds)


def _compare(case: str, sides: dict[str, Callable[[], float]], rounds: int) -> list[Measurement]:
    seen: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, run in sides.items():
            rate = run()
            if number:
                seen[side].append(rate)
    measured = {side: measure(f"3 scalars and {FLOATS} floats, {case}", side, rates) for side, rates in seen.items()}
    table: list[tuple[Measurement, Measurement | None]] = []
    for side, measurement in measured.items():
        what = side.partition(",")[0]
        bases = [measured[f"{what}, {name}"] for name in ("2.2.5", "one Example a row") if f"{what}, {name}" in measured]
        is_ours = side.startswith(f"{what}, ours")
        table.extend((measurement, base) for base in (bases if is_ours else [None]))
    print_table(f"3 scalars and {FLOATS} floats, {case}", table)
    return list(measured.values())


def _seconds(run: Callable[..., Any], *arguments: Any, **named: Any) -> float:
    start = time.perf_counter()
    run(*arguments, **named)
    return time.perf_counter() - start


def _drain(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def _exhaust(rows: Iterable[Any]) -> None:
    for _ in rows:
        pass


def _write_ours(batch: Any, path: str) -> None:
    from tfos_core.tfrecords.encode import encode_in_parts
    from tfos_core.tfrecords.fields import RecordType, fields_of

    fields = fields_of(batch.schema, RecordType.EXAMPLE)
    with Path(path).open("wb") as file:
        for frames in encode_in_parts(batch, fields):
            file.write(frames.data.data)


def _read_ours(path: str, schema: Any) -> None:
    from tfos_core.tfrecords.folders import list_files
    from tfos_core.tfrecords.options import ReadOptions
    from tfos_core.tfrecords.reading import ReadTask

    _exhaust(ReadTask(schema=schema, options=ReadOptions()).read(list_files([path])))


def write_examples(rows: Iterable[Any], path: str) -> int:
    """What Python code around TensorFlow does: one message for each row."""
    import tensorflow as tf

    train, count = tf.train, 0
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            features = {
                "id": train.Feature(int64_list=train.Int64List(value=[row["id"]])),
                "label": train.Feature(float_list=train.FloatList(value=[row["label"]])),
                "name": train.Feature(bytes_list=train.BytesList(value=[row["name"].encode()])),
                "x": train.Feature(float_list=train.FloatList(value=row["x"])),
            }
            writer.write(train.Example(features=train.Features(feature=features)).SerializeToString())
            count += 1
    return count


def read_examples(paths: Iterable[str]) -> Iterator[tuple[int, float, str, list[float]]]:
    """One message for each record, as plain Python values."""
    import tensorflow as tf

    for path in paths:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            yield (
                feature["id"].int64_list.value[0],
                feature["label"].float_list.value[0],
                feature["name"].bytes_list.value[0].decode(),
                list(feature["x"].float_list.value),
            )


@dataclass(frozen=True, slots=True)
class WriteExamples:
    """Writes a partition in Python."""

    folder: str

    def __call__(self, number: int, rows: Iterable[Any]) -> Iterator[int]:
        yield write_examples(rows, f"{self.folder}/part-{number}")


if __name__ == "__main__":
    import tfrecords as this  # functions that Spark pickles are those of a module that executors import, not of __main__

    this.main()
