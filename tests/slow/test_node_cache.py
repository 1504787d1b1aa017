"""Nodes that are killed while they replay: nothing of their caches stays, and the next attempt is fed again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import nodes
from testbed.clusters import Recorder
from testbed.spark_context import start_context

from tfos_core.options import ClusterOptions, NodeCache
from tfos_core.restarts import RestartPolicy, run_job

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS, EPOCHS = 400, 4


@pytest.fixture
def sc() -> Iterator[SparkContext]:
    with start_context("local-cluster[2,1,1024]") as context:
        yield context


def folder_of(_: int) -> str:
    return os.environ["SPARK_LOCAL_DIRS"]


def test_a_node_that_is_killed_in_a_replayed_epoch_leaves_no_file_and_costs_a_restart(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    events = Recorder()
    rows = sc.parallelize([([number / 3] * 100, number) for number in range(ROWS)], 4)
    folders = {Path(name) for text in sc.parallelize(range(4), 4).map(folder_of).collect() for name in text.split(",")}
    options = ClusterOptions(on_event=events, cache=NodeCache(memory_bytes=0))
    policy = RestartPolicy(max_restarts=1, backoff_s=0.1)
    args = {"folder": str(tmp_path), "killed_after": ROWS * 3 // 4}
    report, restarts = run_job(
        sc, nodes.note_rows, args, 2, data=rows, num_epochs=EPOCHS, policy=policy, options=options, reservation_timeout=60
    )
    assert len(restarts) == 1
    fed = events.all("feed_finished")
    # A program that saves nothing gets all epochs again: the first one by Spark, because what was kept is gone.
    assert [event.cached for event in fed[-EPOCHS:]] == [False, True, True, True]
    assert not fed[0].cached
    assert report.rows == ROWS * EPOCHS
    taken = [note["rows"] for found in nodes.notes(tmp_path).values() for note in found if note.get("restart_count") == 1]
    assert set(Counter(text for each in taken for text in each).values()) == {EPOCHS}
    assert not [path for folder in folders for path in folder.rglob("*") if path.name.startswith("tfos-cache")]
