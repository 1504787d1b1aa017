"""Rows a second: our feed, Spark alone iterating the same rows, a feed by hand, and TensorFlowOnSpark 2.2.5, in alternating rounds.

    python benchmarks/feed.py [--rounds 5] [--scale 1.0] [--shape NAME]... [--no-upstream] [--no-by-hand]

All sides run on `local-cluster[2,1,2048]` with the same settings. Data is cached and counted before the first round. A round of
Spark alone is `rdd.foreachPartition` over every row, or `df.mapInArrow` over every batch, in Python workers of its own; a round of
a feed is one `train` call of one epoch on a cluster that stays up, from the call to its return, when every row was taken by a node.
A round by hand sends the same rows to processes of a feed that was written for nothing else, and gives no guarantee (`by_hand.py`).
The first round of each side warms up and is not counted; it is where memory is watched. CPU seconds are those of all processes of a
side, the JVMs included; memory is the peak of its Python processes on the executors: Spark's workers, and the nodes.

Programs take batches of 1000 rows where rows are small (10 numbers, a string), and of 100 where they are not. They take them with
`next_batch`; from `as_dataset` in a Python loop, where TensorFlow makes a Python object of each tensor of each batch; and from
`as_dataset` inside a `tf.function`, as training does.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import node_functions
from by_hand import ByHand
from report import Measurement, measure, print_table, write_results
from session import MASTER, own_workers, start_spark
from shapes import SHAPES, Shape, build
from upstream import Upstream
from usage import PeakMemory, Usage

EXECUTORS = 2
WAYS = {
    "next_batch": node_functions.consume_batches,
    "as_dataset": node_functions.consume_datasets,
    "as_dataset in tf.function": node_functions.consume_inside,
}
UPSTREAM = "upstream 2.2.5"
#: What the processes of the sides are told apart by.
ALONE, BY_HAND = "alone", "by hand"
CPU, MEMORY = "CPU s/M rows", "MiB peak"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one pass over all rows took."""

    rows: int
    seconds: float
    cpu_s: float
    by_kind: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Side:
    """One way to take the rows: `run` makes a round, `peak` another one, for its memory in MiB."""

    run: Callable[[], Round]
    peak: Callable[[], float]
    peak_mib: float = 0.0
    rounds: list[Round] = field(default_factory=list)


def main() -> None:
    """Run every shape, print a table for each, and write the results."""
    options = _parse()
    usage = Usage()
    settings = {name: value for name, value in vars(options).items() if value is not None}
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Upstream("feed")) if options.upstream else None
        spark = stack.enter_context(start_spark())
        for shape in SHAPES:
            if not options.shape or shape.name in options.shape:
                measurements = _run_shape(spark, shape, upstream, usage, options)
                print(f"\nwritten: {write_results('feed', measurements, master=MASTER, **settings)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of rows (default 1.0)")
    parser.add_argument("--shape", action="append", choices=[shape.name for shape in SHAPES], help="only this one; repeatable")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the data (default 4)")
    parser.add_argument("--batch-size", type=int, help="rows of a batch (default: 1000 of small rows, 100 of others)")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    parser.add_argument("--no-by-hand", dest="by_hand", action="store_false", help="without the feed by hand")
    return parser.parse_args()


def _scaled(rows: int, options: argparse.Namespace) -> int:
    """Rows times the scale, in whole partitions."""
    partitions: int = options.partitions
    return max(1, int(rows * options.scale / partitions)) * partitions


def _run_shape(spark: Any, shape: Shape, upstream: Upstream | None, usage: Usage, options: argparse.Namespace) -> list[Measurement]:
    from tfos_core import TFCluster

    rows = _scaled(shape.rows, options)
    data = build(spark, shape, rows, options.partitions)
    if upstream is not None:
        theirs = {"rows": _scaled(shape.upstream_rows, options), "partitions": options.partitions}
        upstream.begin(shape.name, batch=options.batch_size or shape.batch, **theirs)
    sides: dict[str, Side] = {}
    for way, function in WAYS.items():
        batch = options.batch_size or shape.batch
        context = spark.sparkContext
        cluster = TFCluster.run(context, function, {"batch_size": batch}, EXECUTORS, 0, input_mode=TFCluster.InputMode.SPARK)
        with contextlib.ExitStack() as stack:
            these = {
                f"Spark alone ({way})": _side(usage.of(ALONE), rows, _iterate_alone, context, data, shape),
                f"ours, {way}": _side(usage.of(""), rows, cluster.train, data, 1),
            }
            if options.by_hand:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="by-hand-")))
                receivers = ByHand.started(shape, way, batch=batch, folder=folder, count=EXECUTORS, group=BY_HAND)
                these[f"by hand ({way})"] = _side(usage.of(BY_HAND), rows, stack.enter_context(receivers).run, context, data)
            if upstream is not None and UPSTREAM not in sides:
                these[UPSTREAM] = _their_side(upstream, _scaled(shape.upstream_rows, options))
            _alternate(these, options.rounds)
        sides |= these
        cluster.shutdown()
    if upstream is not None:
        upstream.end()
    data.unpersist()
    return _summarise(shape, sides)


def _side(usage: Usage, rows: int, function: Callable[..., Any], *arguments: Any) -> Side:
    def run() -> Round:
        before, started = usage.cpu_by_kind(), time.perf_counter()
        function(*arguments)
        seconds, after = time.perf_counter() - started, usage.cpu_by_kind()
        spent = {kind: after[kind] - before[kind] for kind in after}
        return Round(rows=rows, seconds=seconds, cpu_s=sum(spent.values()), by_kind=spent)

    def peak() -> float:
        with PeakMemory(usage) as memory:
            function(*arguments)
        return memory.peak_mib

    return Side(run=run, peak=peak)


def _their_side(upstream: Upstream, rows: int) -> Side:
    return Side(run=lambda: Round(rows=rows, **upstream.round()), peak=lambda: float(upstream.round("memory")["peak_mib"]))


def _alternate(sides: dict[str, Side], count: int) -> None:
    """`count` rounds of each side in turn, after one of each that warms up."""
    for side in sides.values():
        side.peak_mib = side.peak()
    order = list(sides.values())
    for number in range(count):
        # What one side leaves for later falls on another one each time.
        for side in order if number % 2 else reversed(order):
            side.rounds.append(side.run())


def _summarise(shape: Shape, sides: dict[str, Side]) -> list[Measurement]:
    rates = {name: measure(shape.shown, name, [each.rows / each.seconds for each in side.rounds]) for name, side in sides.items()}
    pairs: list[tuple[Measurement, Measurement | None]] = []
    for name, value in rates.items():
        way = name.partition("ours, ")[2]
        bases = [rates[base] for base in (f"Spark alone ({way})", f"by hand ({way})", UPSTREAM) if way and base in rates]
        pairs += [(value, base) for base in bases or [None]]
    costs = []
    for name, side in sides.items():
        costs.append(measure(shape.shown, name, [each.cpu_s / each.rows * 1e6 for each in side.rounds], unit=CPU))
        for kind in side.rounds[0].by_kind:
            spent = [each.by_kind[kind] / each.rows * 1e6 for each in side.rounds]
            costs.append(measure(shape.shown, name, spent, unit=f"{CPU}, {kind}"))
        costs.append(measure(shape.shown, name, [side.peak_mib], unit=MEMORY))
    print_table(shape.shown, [*pairs, *((cost, None) for cost in costs)])
    return [*rates.values(), *costs]


def _iterate_alone(context: Any, data: Any, shape: Shape) -> None:
    with own_workers(context, ALONE):
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
