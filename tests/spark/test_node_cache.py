"""Epochs that nodes replay: one Spark job for the rows of all of them. The rest is in the unit tests, kills in the slow tier."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster

from tfos_core.options import NodeCache

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark

ROWS = 60
EPOCHS = 3


def row(number: int) -> tuple[list[float], int, str]:
    return [number / 3, -0.0, 2.0], number, f"row {number}"


def test_rows_of_every_epoch_come_from_the_nodes_after_the_first(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    """An RDD that is kept in memory, then a DataFrame that is kept on disk and shuffled."""
    from pyspark.sql import SparkSession

    events = Recorder()
    rdd = sc.parallelize([row(number) for number in range(ROWS)], 4)
    frame = SparkSession(sc).createDataFrame(rdd, "x array<double>, y long, z string", verifySchema=False)
    options = {"cache": NodeCache()}
    with started_cluster(sc, nodes.note_rows, {"folder": str(tmp_path)}, on_event=events, options=options) as running:
        first = running.train(rdd, num_epochs=EPOCHS)
        on_disk: Any = NodeCache(memory_bytes=0, shuffle=True)
        second = running.train(frame, num_epochs=EPOCHS, final=True, cache=on_disk)
        running.shutdown()
    assert (first.rows, first.epochs, second.rows, second.epochs) == (ROWS * EPOCHS, EPOCHS, ROWS * EPOCHS, EPOCHS)
    fed = events.all("feed_finished")
    assert [event.cached for event in fed] == [False, True, True] * 2
    assert [event.rows for event in fed] == [ROWS] * 2 * EPOCHS
    for call in (fed[:EPOCHS], fed[EPOCHS:]):
        assert {str(dict(event.rows_per_node)) for event in call} == {str(dict(call[0].rows_per_node))}
    taken = [note["rows"] for found in nodes.notes(tmp_path).values() for note in found if "rows" in note]
    expected = Counter(repr(row(number)) for number in range(ROWS))
    expected += Counter(repr((np.array(x), y, z)) for x, y, z in (row(number) for number in range(ROWS)))
    assert Counter(text for rows in taken for text in rows) == Counter(dict.fromkeys(expected, EPOCHS))
    assert "cache-not-used" not in {warning.id for warning in events.all("warning")}
