"""Rows a second of `as_dataset` with and without `equal_steps`, in alternating clusters of one run.

    python benchmarks/equal_steps.py [--rounds 5] [--scale 1.0] [--shape NAME]... [--batch-size N] [--nodes 1]

As in `feed.py`: cached data, a round is one `train` call of one epoch. Each round starts a cluster of either kind, lets one call
warm it up, and measures two; every epoch ends with an agreement on the number of steps. One node, on one executor, asks for its
steps and gets them over the control channel as any node does, but waits for no other: several nodes are as fast as the slowest of
them, which synchronous training is with or without an agreement, and which on few cores is another one at every moment.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import node_functions
from report import Measurement, measure, print_table, write_results
from session import start_spark
from shapes import SHAPES, Shape, build

PARTITIONS = 4
_MEMORY_MB = 2048
CALLS = 2
WITHOUT, WITH = "as_dataset", "as_dataset, equal_steps"


def main() -> None:
    """Run every shape, print a table for each, and write the results."""
    options = _parse()
    measurements: list[Measurement] = []
    master = f"local-cluster[{options.nodes},1,{_MEMORY_MB // options.nodes}]"
    with start_spark(master=master) as spark:
        for shape in SHAPES:
            if not options.shape or shape.name in options.shape:
                measurements += _run_shape(spark, shape, options)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('equal_steps', measurements, master=master, **settings)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="clusters of either kind (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows (default 1.0)")
    parser.add_argument("--shape", action="append", choices=[shape.name for shape in SHAPES], help="only this one; repeatable")
    parser.add_argument("--batch-size", type=int, help="rows of a batch (default: 1000 of small rows, 100 of others)")
    parser.add_argument("--nodes", type=int, default=1, help="nodes, each on an executor of its own (default 1)")
    return parser.parse_args()


def _run_shape(spark: Any, shape: Shape, options: argparse.Namespace) -> list[Measurement]:
    rows = max(1, int(shape.rows * options.scale / PARTITIONS)) * PARTITIONS
    batch = options.batch_size or shape.batch
    data = build(spark, shape, rows, PARTITIONS)
    sides: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    for _ in range(options.rounds):
        for side in sides:
            equal_steps = side == WITH
            sides[side] += _measure_cluster(spark, data, rows, nodes=options.nodes, batch_size=batch, equal_steps=equal_steps)
    data.unpersist()
    without, with_ = (measure(shape.name, side, values) for side, values in sides.items())
    print_table(shape.shown, [(without, None), (with_, without)])
    return [without, with_]


def _measure_cluster(spark: Any, data: Any, rows: int, *, nodes: int, batch_size: int, equal_steps: bool) -> list[float]:
    from tfos_core import TFCluster
    from tfos_core.options import ClusterOptions

    cluster = TFCluster.run(
        spark.sparkContext,
        node_functions.consume_datasets,
        {"batch_size": batch_size},
        nodes,
        0,
        input_mode=TFCluster.InputMode.SPARK,
        options=ClusterOptions(equal_steps=equal_steps),
    )
    cluster.train(data, 1)
    rates = []
    for _ in range(CALLS):
        started = time.perf_counter()
        cluster.train(data, 1)
        rates.append(rows / (time.perf_counter() - started))
    cluster.shutdown()
    return rates


if __name__ == "__main__":
    main()
