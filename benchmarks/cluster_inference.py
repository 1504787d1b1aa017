"""Rows a second through `TFCluster.inference`: ours and TensorFlowOnSpark 2.2.5, in alternating rounds of one run.

    python benchmarks/cluster_inference.py [--rounds 5] [--scale 1.0] [--shape tuple10|list784] [--no-upstream]

As in `feed.py`, but nodes answer: each row with its last value, which is what the channel costs without a model. A round counts
the answers of all rows. `Spark alone` maps the same function over the rows in Spark's own Python workers and counts. The first
round of each side warms up and is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import node_functions
from report import Measurement, measure, print_table, write_results
from session import MASTER, own_workers, start_spark
from shapes import SHAPES, Shape, build
from upstream import Upstream

EXECUTORS = 2
NAMES = ("tuple10", "list784")
OURS, ALONE, UPSTREAM = "TFCluster.inference", "Spark alone", "upstream 2.2.5"


def main() -> None:
    """Run both shapes, print a table for each, and write the results."""
    options = _parse()
    measurements: list[Measurement] = []
    with start_spark() as spark:
        for shape in SHAPES:
            if shape.name in (options.shape or NAMES):
                measurements += _compare(spark, shape, options)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('cluster_inference', measurements, master=MASTER, **settings)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows (default 1.0)")
    parser.add_argument("--shape", action="append", choices=NAMES, help="only this one")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the data (default 4)")
    parser.add_argument("--batch-size", type=int, default=100, help="rows of next_batch (default 100)")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    return parser.parse_args()


def _compare(spark: Any, shape: Shape, options: argparse.Namespace) -> list[Measurement]:
    from tfos_core import TFCluster

    rows, theirs = (
        int(count * options.scale / options.partitions) * options.partitions for count in (shape.rows, shape.upstream_rows)
    )
    data = build(spark, shape, rows, options.partitions)
    args = {"batch_size": options.batch_size}
    cluster = TFCluster.run(
        spark.sparkContext, node_functions.answer_batches, args, EXECUTORS, 0, input_mode=TFCluster.InputMode.SPARK
    )
    sides: dict[str, Callable[[], float]] = {
        ALONE: lambda: _rate_alone(spark.sparkContext, data, rows),
        OURS: lambda: _rate(lambda: cluster.inference(data), rows),
    }
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        if options.upstream:
            upstream = stack.enter_context(Upstream("inference"))
            upstream.begin(shape.name, rows=theirs, partitions=options.partitions, batch=options.batch_size)
            sides[UPSTREAM] = lambda: theirs / float(upstream.round()["seconds"])
        for number in range(options.rounds + 1):
            for side, run in sides.items():
                rate = run()
                if number:
                    rates.setdefault(side, []).append(rate)
    cluster.shutdown()
    data.unpersist()
    measured = {side: measure(shape.shown, side, values) for side, values in rates.items()}
    pairs: list[tuple[Measurement, Measurement | None]] = [(each, None) for side, each in measured.items() if side != OURS]
    pairs += [(measured[OURS], each) for side, each in measured.items() if side != OURS]
    print_table(shape.shown, pairs)
    return list(measured.values())


def _rate(answers: Callable[[], Any], rows: int) -> float:
    started = time.perf_counter()
    counted = answers().count()
    assert counted == rows, f"{counted} answers to {rows} rows"
    return rows / (time.perf_counter() - started)


def _rate_alone(context: Any, data: Any, rows: int) -> float:
    with own_workers(context):
        return _rate(lambda: data.mapPartitions(_last_values), rows)


def _last_values(rows: Iterable[Any]) -> Iterator[Any]:
    return (row[-1] for row in rows)


if __name__ == "__main__":
    import cluster_inference as this  # functions that Spark pickles are those of a module that executors import, not of __main__

    this.main()
