"""Rows a second that a node reads itself: `ctx.dataset` against tf.data code written by hand, in alternating rounds of one run.

    python benchmarks/direct_reading.py [--rounds 5] [--rows 400000] [--batch 256] [--shape all|columns|image] [--no-spark]

Two shapes: ten float columns, and 784 floats with a label. These sides for each:

* by hand: `tf.data.TFRecordDataset(files).batch(n).map(tf.io.parse_example)` with prefetch, as TensorFlow's guides have it;
* `ctx.dataset` on the same TFRecord files (both checksums of each record checked, as TensorFlow does);
* `ctx.dataset` on the same rows as Parquet;
* pyarrow alone on these Parquet files: record batches as large as `ctx.dataset` asks for, of which nobody makes a tensor;
* the same Parquet and TFRecord files read by Spark, on one executor of one core, and fed to one node that takes `as_dataset`: a
  round is one `train` call on a cluster that stays up.

Of the others one process reads everything, from a local folder, with malloc set up as in a node (`tfos_core.allocator`), and a loop
takes the batches. The first round of each side warms up.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import node_functions
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Measurement, measure, print_table, write_results
from session import start_spark

from tfos_core.allocator import keep_freed_memory

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
FILES = 4
COLUMNS = 10
PIXELS = 784
SHAPES = ("columns", "image")
MASTER = "local-cluster[1,1,2048]"
#: Of the record batches that `ctx.dataset` has pyarrow make.
_BLOCK_BYTES, _MOST_ROWS = 4 << 20, 16384


def main() -> None:
    """Measure every shape, print a table for each, and write the results."""
    options = _parse()
    keep_freed_memory()
    measurements: list[Measurement] = []
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(start_spark(master=MASTER)) if options.spark else None
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="direct-"))
        for shape in SHAPES if options.shape == "all" else (options.shape,):
            measurements += _compare(shape, options, Path(folder) / shape, spark)
    master = MASTER if options.spark else "none"
    print(f"\nwritten: {write_results('direct_reading', measurements, master=master, **vars(options))}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--rows", type=int, default=400_000, help="rows (default 400000; a quarter of it with 784 floats)")
    parser.add_argument("--batch", type=int, default=256, help="rows of a batch (default 256)")
    parser.add_argument("--shape", choices=["all", *SHAPES], default="all", help="which rows (default all)")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="without feeding the files through Spark")
    return parser.parse_args()


def make_table(shape: str, rows: int) -> Any:
    """The data, always the same."""
    random = np.random.default_rng(1)
    if shape == "columns":
        return pa.table({f"c{number}": random.random(rows, dtype=np.float32) for number in range(COLUMNS)})
    pixels = pa.array(random.random(rows * PIXELS, dtype=np.float32))
    offsets = pa.array(np.arange(0, rows * PIXELS + 1, PIXELS, dtype=np.int32))
    return pa.table({"image": pa.ListArray.from_arrays(offsets, pixels), "label": pa.array(np.arange(rows) % 10)})


def write_files(table: Any, folder: Path) -> None:
    """The same rows twice, in as many files."""
    from tfos_core.tfrecords.encode import encode_in_parts
    from tfos_core.tfrecords.fields import RecordType, fields_of

    fields = fields_of(table.schema, RecordType.EXAMPLE)
    for kind in ("parquet", "tfrecord"):
        (folder / kind).mkdir(parents=True)
    size = -(-table.num_rows // FILES)
    for number in range(FILES):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / "parquet" / f"{number}.parquet", row_group_size=size // 2)
        with (folder / "tfrecord" / f"{number}.tfrecord").open("wb") as file:
            for batch in part.combine_chunks().to_batches():
                for frames in encode_in_parts(batch, fields, RecordType.EXAMPLE):
                    file.write(frames.data.data)


def by_hand(shape: str, folder: Path, batch: int) -> Any:
    """What one would write."""
    import tensorflow as tf

    if shape == "columns":
        features: dict[str, Any] = {f"c{number}": tf.io.FixedLenFeature([], tf.float32) for number in range(COLUMNS)}
    else:
        features = {"image": tf.io.FixedLenFeature([PIXELS], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    dataset = tf.data.TFRecordDataset(sorted(map(str, folder.glob("tfrecord/*"))), num_parallel_reads=tf.data.AUTOTUNE)
    parsed = dataset.batch(batch).map(lambda records: tf.io.parse_example(records, features), num_parallel_calls=tf.data.AUTOTUNE)
    return parsed.prefetch(tf.data.AUTOTUNE)


def ours(kind: str, folder: Path, batch: int) -> Any:
    """As dicts, like the other side."""
    from tfos_core.context import TFNodeContext
    from tfos_core.topology import Role

    path = str(folder / kind)
    names = pq.read_schema(next((folder / "parquet").iterdir())).names
    ctx = TFNodeContext(executor_id=0, role=Role.CHIEF, index=0, cluster_spec={"chief": ["c:1"]}, data={"path": path})
    return ctx.dataset(batch, format=kind, input_mapping={name: name for name in names})


class _Alone:
    """Iterating it reads all files with pyarrow, and nothing else; a batch has an axis of rows, like those of the other sides."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._files = sorted((folder / "parquet").iterdir())
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for path in self._files:
            for batch in pq.ParquetFile(path, pre_buffer=True).iter_batches(self._rows):
                yield {"rows": np.empty((batch.num_rows, 0))}


def _count(dataset: Any) -> int:
    return sum(int(next(iter(batch.values())).shape[0]) for batch in dataset)


@contextlib.contextmanager
def _fed(folder: Path, batch: int, spark: Any) -> Iterator[dict[str, Callable[[], int]]]:
    """Sides whose rounds have Spark read the files and feed a node; each gives the number of rows that the node took."""
    from tfos_core import TFCluster, dfutil
    from tfos_core.options import ClusterOptions

    taken: list[int] = []
    options = ClusterOptions(gpus=0, on_event=lambda event: taken.append(event.rows) if event.kind == "feed_finished" else None)
    context, mode = spark.sparkContext, TFCluster.InputMode.SPARK
    cluster = TFCluster.run(context, node_functions.consume_datasets, {"batch_size": batch}, 1, 0, input_mode=mode, options=options)

    def train(data: Any) -> int:
        taken.clear()
        cluster.train(data, 1)
        return sum(taken)

    try:
        yield {
            "fed by Spark, TFRecord": functools.partial(train, dfutil.loadTFRecords(context, str(folder / "tfrecord"))),
            "fed by Spark, Parquet": functools.partial(train, spark.read.parquet(str(folder / "parquet"))),
        }
    finally:
        cluster.shutdown()


def _compare(shape: str, options: argparse.Namespace, folder: Path, spark: Any) -> list[Measurement]:
    rows = options.rows if shape == "columns" else options.rows // 4
    table = make_table(shape, rows)
    write_files(table, folder)
    at_once = min(_MOST_ROWS, _BLOCK_BYTES * rows // table.nbytes)
    sides: dict[str, Callable[[], Any]] = {
        "tf.data by hand, TFRecord": lambda: by_hand(shape, folder, options.batch),
        "ctx.dataset, TFRecord": lambda: ours("tfrecord", folder, options.batch),
        "ctx.dataset, Parquet": lambda: ours("parquet", folder, options.batch),
        "pyarrow alone, Parquet": lambda: _Alone(folder, at_once),
    }
    seen: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        rounds: dict[str, Callable[[], int]] = {side: functools.partial(_count, make()) for side, make in sides.items()}
        if spark is not None:
            rounds |= stack.enter_context(_fed(folder, options.batch, spark))
        for number in range(options.rounds + 1):
            for side, run in rounds.items():
                start = time.perf_counter()
                found = run()
                rate = found / (time.perf_counter() - start)
                assert found == rows, f"{side} gave {found} rows of {rows}"
                if number:
                    seen.setdefault(side, []).append(rate)
    case = f"{COLUMNS} floats" if shape == "columns" else f"{PIXELS} floats and a label"
    measured = {side: measure(case, side, rates) for side, rates in seen.items()}
    base = next(iter(measured.values()))
    print_table(case, [(each, None if each is base else base) for each in measured.values()])
    return list(measured.values())


if __name__ == "__main__":
    main()
