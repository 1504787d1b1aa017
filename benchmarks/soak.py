"""Whether anything grows: clusters started, fed and shut down in one driver, and runs of `tfos train` in a row.

    python benchmarks/soak.py [--cycles 200] [--every 10] [--runs 50] [--private-tmp]

Two executors; functions without TensorFlow, so that a cycle takes a second or two. Of ten clusters five are fed, one answers
rows, one reads for itself, and three fail. Every tenth cycle is sampled when it is over, after a garbage collection. The first
fifth of the cycles warms up; a line is laid through the rest. Ends with code 1 when anything grows.

Give it a machine, or a /tmp, of its own (`unshare -m` and a tmpfs on /tmp) and say so with `--private-tmp`: then /tmp is
looked at as well as TMPDIR.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import soak_nodes
from footprint import CLUSTER_LIMITS, MARK, ClusterFootprint
from growth import Growth, fit_all, markdown_table, print_growth
from report import RESULTS, describe_machine, write_results
from session import start_spark
from soak_runs import RUN_LIMITS, run_in_a_row

EXECUTORS = 2
#: Two cores each, so that feed tasks run beside each other and nodes need a resource profile.
MASTER = f"local-cluster[{EXECUTORS},2,1024]"
ROWS = 200
WARM_UP = 0.2
#: Spark itself keeps what it shows of a thousand past jobs and queries; it may keep few here, so that growth is ours.
KEEP_LITTLE = {
    f"spark.{name}": "5"
    for name in (
        "ui.retainedJobs",
        "ui.retainedStages",
        "ui.retainedTasks",
        "ui.retainedDeadExecutors",
        "sql.ui.retainedExecutions",
    )
}
#: Many short lives of JVMs that share two cores.
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def main() -> int:
    """Both parts, their tables, and the verdict."""
    options = _parse()
    os.environ[MARK] = uuid.uuid4().hex
    seen: dict[str, list[tuple[int, dict[str, float]]]] = {}
    left: list[str] = []
    started = time.monotonic()
    if options.cycles:
        seen["clusters in one driver"] = _soak_clusters(options, left)
    if options.runs:
        seen["runs of tfos train"], more_left = run_in_a_row(options.runs, minutes=options.minutes, private_tmp=options.private_tmp)
        options.runs = len(seen["runs of tfos train"])
        left += more_left
    limits = {"clusters in one driver": CLUSTER_LIMITS, "runs of tfos train": RUN_LIMITS}
    parts = {title: fit_all(samples, limits[title], WARM_UP) for title, samples in seen.items()}
    for title, found in parts.items():
        print_growth(title, found)
    for line in left:
        print(f"left behind: {line}")
    growing = [f"{title}: {entry.name}" for title, found in parts.items() for entry in found if entry.grows]
    verdict = f"grows: {', '.join(growing)}" if growing else "nothing grows"
    results = options.results
    del options.results, options.minutes
    settings = vars(options) | {"seconds": round(time.monotonic() - started), "verdict": verdict}
    tables = {title: [asdict(entry) for entry in found] for title, found in parts.items()}
    path = write_results("soak", [], folder=results, master=MASTER, tables=tables, samples=seen, left_behind=left, **settings)
    _write_markdown(path.with_suffix(".md"), parts, settings, left)
    print(f"\n{verdict}\nwritten: {path} and {path.with_suffix('.md').name}")
    return 1 if growing or left else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=200, help="clusters in one driver (default 200)")
    parser.add_argument("--every", type=int, default=10, help="cycles from one sample to the next (default 10)")
    parser.add_argument("--runs", type=int, default=50, help="runs of tfos train (default 50)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end each part early after so long (default: never)")
    parser.add_argument("--private-tmp", action="store_true", help="nobody else writes to /tmp: look at it too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the tables (default benchmarks/results)")
    return parser.parse_args()


def _soak_clusters(options: argparse.Namespace, left: list[str]) -> list[tuple[int, dict[str, float]]]:
    java = {f"spark.{side}.extraJavaOptions": SMALL_JAVA for side in ("driver", "executor")}
    samples: list[tuple[int, dict[str, float]]] = []
    until = time.monotonic() + 60 * options.minutes
    with start_spark(KEEP_LITTLE | java | {"spark.log.level": "OFF"}, master=MASTER) as spark:
        footprint = ClusterFootprint(
            mark=os.environ[MARK], temporary=Path(os.environ["TMPDIR"]), tmp=Path("/tmp") if options.private_tmp else None
        )
        cycles = Cycles(spark)
        for number in range(1, options.cycles + 1):
            cycles.run(number)
            is_last = number == options.cycles or time.monotonic() >= until
            if number % options.every == 0 or is_last:
                samples.append((number, footprint.sample()))
                print(f"  cycle {number}: {_shortly(samples[-1][1])}", flush=True)
            if is_last:
                options.cycles = number
                break
        left += footprint.left
    return samples


class Cycles:
    """One cluster after the other, of ten kinds in turn; every kind leaves the executors as it found them."""

    def __init__(self, spark: Any) -> None:
        from tfos_core.options import ClusterOptions

        # One for all of them, as a program that runs many clusters would have it.
        self._options = ClusterOptions()
        self._sc = spark.sparkContext
        self._rdd = self._sc.parallelize(range(ROWS), 4).map(float).cache()
        self._frame = spark.createDataFrame([(float(i), i) for i in range(ROWS)], "x double, y long").repartition(4).cache()
        assert self._rdd.count() == self._frame.count() == ROWS
        self._kinds: tuple[Callable[[], None], ...] = (
            self._feed_rdd, self._fail, self._feed_frame, self._answer, self._killed,
            self._read, self._feed_rdd, self._feed_frame, self._fail_in_the_middle, self._feed_rdd,
        )  # fmt: skip

    def run(self, number: int) -> None:
        """Cycle `number`, from 1."""
        self._kinds[(number - 1) % len(self._kinds)]()

    def _feed_rdd(self) -> None:
        self._train(soak_nodes.consume, self._rdd)

    def _feed_frame(self) -> None:
        self._train(soak_nodes.consume, self._frame)

    def _fail(self) -> None:
        self._expect_failure("no column 'label'", soak_nodes.fail)

    def _fail_in_the_middle(self) -> None:
        self._expect_failure("no column 'label'", soak_nodes.fail_in_the_middle)

    def _killed(self) -> None:
        self._expect_failure("signal 9", soak_nodes.kill_itself)

    def _answer(self) -> None:
        cluster = self._start(soak_nodes.answer)
        assert cluster.inference(self._rdd).count() == ROWS
        cluster.shutdown()

    def _read(self) -> None:
        self._start(soak_nodes.end_at_once, spark_mode=False).shutdown()

    def _train(self, function: Any, data: Any) -> None:
        cluster = self._start(function)
        report = cluster.train(data, 2)
        assert report.rows == 2 * ROWS
        cluster.shutdown()

    def _expect_failure(self, text: str, function: Any) -> None:
        from tfos_core.errors import NodeFailedError

        try:
            cluster = self._start(function)
            # Many epochs: the feed is still at work when the node fails.
            with contextlib.suppress(NodeFailedError):
                cluster.train(self._rdd, 3)
            cluster.shutdown()
        except NodeFailedError as exc:
            assert text in str(exc)
            return
        raise AssertionError(f"the cluster did not fail with {text!r}")

    def _start(self, function: Any, *, spark_mode: bool = True) -> Any:
        from tfos_core import TFCluster

        mode = TFCluster.InputMode.SPARK if spark_mode else TFCluster.InputMode.TENSORFLOW
        return TFCluster.run(self._sc, function, {}, EXECUTORS, 0, input_mode=mode, options=self._options)


def _shortly(values: dict[str, float]) -> str:
    shown = ("driver: memory", "driver: Python objects", "driver: threads", "driver: descriptors", "driver's JVM: live heap")
    return ", ".join(f"{name.partition(': ')[2]} {values[name]:,.0f}" for name in shown if name in values)


def _write_markdown(path: Path, parts: dict[str, list[Growth]], settings: dict[str, Any], left: list[str]) -> None:
    machine = describe_machine()
    lines = ["# Soak", "", f"{settings['verdict']}. `{machine['cpu']}`, {machine['cores']} cores, Python {machine['python']}, "]
    lines[-1] += ", ".join(f"{name} {version}" for name, version in machine["packages"].items()) + "."
    for title, found in parts.items():
        count, word = (settings["runs"], "run") if "tfos train" in title else (settings["cycles"], "cycle")
        lines += ["", f"## {count} {title}", "", markdown_table(found, word)]
    lines += ["", *[f"Left behind: {line}" for line in left]] if left else []
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
