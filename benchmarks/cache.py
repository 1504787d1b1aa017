"""Rows a second of epochs that nodes replay from their caches (`data.cache: node`), against Spark alone iterating the same rows.

    python benchmarks/cache.py [--rounds 5] [--scale 1.0] [--shape NAME]... [--way NAME]... [--disk]

As in `feed.py`: `local-cluster[2,1,2048]`, cached data, a round of Spark alone is one pass over all rows. A round of ours is one
`train` call of three epochs: `first epoch` is the one that Spark feeds and nodes keep, `cached epochs` are the other two, which
they replay. The seconds are those of the event that tells the end of each epoch. With `--disk` nothing is kept in memory, all of it
in a file.

`next_batch` gives rows of Python floats. `the lists alone` is what bounds it: tasks on the same executors that do nothing but make
lists of floats out of an array that lies in memory.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import node_functions
from feed import _iterate_alone
from report import Measurement, measure, print_table, write_results
from session import MASTER, start_spark
from shapes import SHAPES, Shape, build

EXECUTORS = 2
PARTITIONS = 4
EPOCHS = 3
WAYS = {
    "next_batch": node_functions.consume_batches,
    "as_dataset": node_functions.consume_datasets,
    "as_dataset in tf.function": node_functions.consume_inside,
}
#: Enough for all rows at one node: Spark may give one of the two most partitions, and then the disk would be measured.
_MEMORY_BYTES = 512 << 20
DEFAULT_SHAPES = ("list784", "frame784")


def main() -> None:
    """Run every shape, print a table for each, and write the results."""
    options = _parse()
    measurements: list[Measurement] = []
    with start_spark() as spark:
        for shape in SHAPES:
            if shape.name in (options.shape or DEFAULT_SHAPES):
                measurements += _run_shape(spark, shape, options)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('cache', measurements, master=MASTER, **settings)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows (default 1.0)")
    names = [shape.name for shape in SHAPES]
    parser.add_argument("--shape", action="append", choices=names, help=f"only this one; repeatable (default {DEFAULT_SHAPES})")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="only this one; repeatable")
    parser.add_argument("--batch-size", type=int, default=100, help="rows of next_batch and as_dataset (default 100)")
    parser.add_argument("--disk", action="store_true", help="keep nothing in memory")
    return parser.parse_args()


def _run_shape(spark: Any, shape: Shape, options: argparse.Namespace) -> list[Measurement]:
    from tfos_core import TFCluster
    from tfos_core.options import ClusterOptions, NodeCache

    rows = max(1, int(shape.rows * options.scale / PARTITIONS)) * PARTITIONS
    data = build(spark, shape, rows, PARTITIONS)
    cache = NodeCache(memory_bytes=0 if options.disk else _MEMORY_BYTES)
    measured: list[Measurement] = []
    for way in options.way or WAYS:
        ended: list[Any] = []
        cluster = TFCluster.run(
            spark.sparkContext,
            WAYS[way],
            {"batch_size": options.batch_size},
            EXECUTORS,
            0,
            input_mode=TFCluster.InputMode.SPARK,
            options=ClusterOptions(cache=cache, on_event=functools.partial(_note, ended)),
        )
        sides: dict[str, list[float]] = {f"Spark alone ({way})": [], f"first epoch, {way}": [], f"cached epochs, {way}": []}
        alone, first, cached = sides.values()
        lists: list[float] = []
        for number in range(options.rounds + 1):
            started = time.perf_counter()
            _iterate_alone(spark.sparkContext, data, shape)
            alone.append(rows / (time.perf_counter() - started))
            ended.clear()
            cluster.train(data, EPOCHS)
            assert [event.cached for event in ended] == [False] + [True] * (EPOCHS - 1)
            first.append(rows / ended[0].seconds)
            cached.append((EPOCHS - 1) * rows / sum(event.seconds for event in ended[1:]))
            if shape.name == "list784" and way == "next_batch":
                lists.append(rows / _seconds_of_lists(spark, rows // PARTITIONS))
            if not number:
                for side in (*sides.values(), lists):
                    side.clear()
        cluster.shutdown()
        measured += _summarise(shape, sides | ({"the lists alone": lists} if lists else {}))
    data.unpersist()
    return measured


def _seconds_of_lists(spark: Any, rows: int) -> float:
    started = time.perf_counter()
    spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS).foreach(functools.partial(_make_lists, rows))
    return time.perf_counter() - started


def _make_lists(rows: int, _: int) -> None:
    import numpy as np

    values = np.random.default_rng(1).random((100, 784), dtype=np.float32)
    for _ in range(rows // 100):
        values.tolist()


def _note(ended: list[Any], event: Any) -> None:
    if event.kind == "feed_finished":
        ended.append(event)
    elif event.kind == "warning":
        print(event.message)


def _summarise(shape: Shape, sides: dict[str, list[float]]) -> list[Measurement]:
    alone, *ours = (measure(shape.shown, side, values) for side, values in sides.items())
    bound = [(ours[1], ours[2])] if len(ours) > 2 else []
    print_table(shape.shown, [(alone, None), *((each, alone) for each in ours), *bound])
    return [alone, *ours]


if __name__ == "__main__":
    main()
