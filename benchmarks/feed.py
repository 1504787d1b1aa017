"""Rows a second: our feed, Spark alone iterating the same rows, and TensorFlowOnSpark 2.2.5, in alternating rounds of one run.

    python benchmarks/feed.py [--rounds 5] [--scale 1.0] [--shape NAME]... [--no-upstream]

All sides run on `local-cluster[2,1,1024]` with the same settings. Data is cached and counted before the first round. A round of
Spark alone is `rdd.foreachPartition` over every row, or `df.mapInArrow` over every batch; a round of a feed is one `train` call of
one epoch on a cluster that stays up, from the call to its return, when every row was taken by a node. The first round of each side
warms up and is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import node_functions
from report import Measurement, measure, print_table, write_results
from session import MASTER, start_spark
from shapes import SHAPES, Shape, build
from upstream import Upstream

EXECUTORS = 2
WAYS = {"next_batch": node_functions.consume_batches, "as_dataset": node_functions.consume_datasets}


def main() -> None:
    """Run every shape, print a table for each, and write the results."""
    options = _parse()
    measurements: list[Measurement] = []
    with start_spark() as spark:
        for shape in SHAPES:
            if options.shape and shape.name not in options.shape:
                continue
            with contextlib.ExitStack() as stack:
                upstream = stack.enter_context(_upstream(shape, options)) if options.upstream else None
                measurements += _run_shape(spark, shape, upstream, options)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('feed', measurements, master=MASTER, **settings)}")


def _upstream(shape: Shape, options: argparse.Namespace) -> Upstream:
    rows = _scaled(shape.upstream_rows, options)
    arguments = ["--shape", shape.name, "--rows", str(rows), "--partitions", str(options.partitions)]
    return Upstream("feed", *arguments, "--batch-size", str(options.batch_size))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows (default 1.0)")
    parser.add_argument("--shape", action="append", choices=[shape.name for shape in SHAPES], help="only this one; repeatable")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the data (default 4)")
    parser.add_argument("--batch-size", type=int, default=100, help="rows of next_batch and as_dataset (default 100)")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    return parser.parse_args()


def _scaled(rows: int, options: argparse.Namespace) -> int:
    """Rows times the scale, in whole partitions."""
    partitions: int = options.partitions
    return max(1, int(rows * options.scale / partitions)) * partitions


def _run_shape(spark: Any, shape: Shape, upstream: Upstream | None, options: argparse.Namespace) -> list[Measurement]:
    from tfos_core import TFCluster

    rows = _scaled(shape.rows, options)
    data = build(spark, shape, rows, options.partitions)
    sides: dict[str, list[float]] = {}
    for way, function in WAYS.items():
        args = {"batch_size": options.batch_size}
        cluster = TFCluster.run(spark.sparkContext, function, args, EXECUTORS, 0, input_mode=TFCluster.InputMode.SPARK)
        alone, ours = f"Spark alone ({way})", f"ours, {way}"
        rounds: dict[str, Callable[[], float]] = {
            alone: lambda: rows / _seconds(_iterate_alone, data, shape),
            ours: lambda cluster=cluster: rows / _seconds(cluster.train, data, 1),  # type: ignore[misc]
        }
        if upstream is not None and "upstream 2.2.5" not in sides:
            rounds["upstream 2.2.5"] = lambda: _scaled(shape.upstream_rows, options) / upstream.round()["seconds"]
        sides |= _alternate(rounds, options.rounds)
        cluster.shutdown()
    data.unpersist()
    return _summarise(shape, sides)


def _alternate(rounds: dict[str, Callable[[], float]], count: int) -> dict[str, list[float]]:
    """`count` rounds of each side in turn, after one of each that warms up."""
    for run in rounds.values():
        run()
    found: dict[str, list[float]] = {side: [] for side in rounds}
    for _ in range(count):
        for side, run in rounds.items():
            found[side].append(run())
    return found


def _summarise(shape: Shape, sides: dict[str, list[float]]) -> list[Measurement]:
    measured = {side: measure(shape.name, side, values) for side, values in sides.items()}
    pairs: list[tuple[Measurement, Measurement | None]] = []
    for side, value in measured.items():
        base = measured.get(side.replace("ours, ", "Spark alone (") + ")")
        pairs.append((value, base))
        if side.startswith("ours") and "upstream 2.2.5" in measured:
            pairs.append((value, measured["upstream 2.2.5"]))
    print_table(shape.shown, pairs)
    return list(measured.values())


def _seconds(function: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def _iterate_alone(data: Any, shape: Shape) -> None:
    if shape.is_dataframe:
        data.mapInArrow(_count_batches, "rows long").collect()
    else:
        data.foreachPartition(_iterate)


def _iterate(rows: Iterable[Any]) -> None:
    for _ in rows:
        pass


def _count_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


if __name__ == "__main__":
    main()
