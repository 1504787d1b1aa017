"""A cluster that waits for its driver."""

from __future__ import annotations

import time
from pathlib import Path

from testbed import nodes
from testbed.clusters import started_cluster
from testbed.spark_context import start_context


def test_90_seconds_between_ready_and_train_harm_nothing(nothing_left: None, tmp_path: Path) -> None:
    # Spark ends Python workers that were idle for 60 s, and whatever hangs on them.
    with (
        start_context("local-cluster[2,1,1024]") as context,
        started_cluster(context, nodes.consume, {"folder": str(tmp_path)}) as running,
    ):
        time.sleep(90)
        assert running.train(context.parallelize(range(400), 4)).rows == 400
        running.shutdown()
    assert sum(entry.get("rows", 0) for entries in nodes.notes(tmp_path).values() for entry in entries) == 400
