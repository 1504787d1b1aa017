"""Seconds from "executors are there" to "cluster ready", and of shutdown after the last node ended.

    python benchmarks/lifecycle.py [--rounds 5] [--no-upstream]

Ours and TensorFlowOnSpark 2.2.5, two nodes on `local-cluster[2,1,2048]`, in rounds that alternate. `start` is the `run` call with
executors up and idle; `shutdown` is the `shutdown` call when the nodes' functions have already returned. `first start` is the
warm-up round, in which Python workers start too.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import Any

import node_functions
from report import Measurement, measure, print_table, write_results
from session import MASTER, start_spark
from upstream import Upstream

EXECUTORS = 2


def main() -> None:
    """Run the rounds, print the table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every side (default 5)")
    parser.add_argument("--no-upstream", dest="upstream", action="store_false", help="without TensorFlowOnSpark 2.2.5")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(Upstream("lifecycle")) if options.upstream else None
        sc = stack.enter_context(start_spark()).sparkContext
        sc.parallelize(range(EXECUTORS), EXECUTORS).count()
        ours, theirs = [], []
        for _ in range(options.rounds + 1):
            ours.append(_round(sc))
            if upstream is not None:
                theirs.append(upstream.round())
    measurements = _summarise("ours", ours) + (_summarise("upstream 2.2.5", theirs) if theirs else [])
    by_case: dict[str, list[Measurement]] = {}
    for measured in measurements:
        by_case.setdefault(measured.case, []).append(measured)
    for case, values in by_case.items():
        print_table(case, [(value, None if value is values[0] else values[0]) for value in values])
    print(f"\nwritten: {write_results('lifecycle', measurements, master=MASTER, rounds=options.rounds)}")


def _round(sc: Any) -> dict[str, float]:
    from tfos_core import TFCluster

    started = time.perf_counter()
    cluster = TFCluster.run(sc, node_functions.end_at_once, {}, EXECUTORS, 0, input_mode=TFCluster.InputMode.SPARK)
    ready = time.perf_counter()
    cluster.shutdown()
    return {"start_s": ready - started, "shutdown_s": time.perf_counter() - ready}


def _summarise(side: str, rounds: list[dict[str, float]]) -> list[Measurement]:
    first, *rest = rounds
    return [
        measure("first start", side, [first["start_s"]], unit="s"),
        measure("start", side, [entry["start_s"] for entry in rest], unit="s"),
        measure("shutdown", side, [entry["shutdown_s"] for entry in rest], unit="s"),
    ]


if __name__ == "__main__":
    main()
