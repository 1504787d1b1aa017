"""What goes wrong while rows are fed, on real executors."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.processes import read_process
from testbed.waiting import poll_until

from tfos_core.cancellation import Cancellation
from tfos_core.errors import ClusterStateError, FeedError, FeedTimeoutError, InterruptedRunError, NodeFailedError
from tfos_core.options import NodeCache

if TYPE_CHECKING:
    from pyspark import SparkContext

EVERY_ROW = 400


@pytest.fixture
def rows(sc: SparkContext) -> Any:
    """400 rows in 4 partitions."""
    return sc.parallelize(range(EVERY_ROW), 4)


def example_loop() -> str:
    """The loop that docs/uneven-data.md shows."""
    page = Path(__file__).parents[2] / "docs" / "uneven-data.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if "strategy.run" in block)


def taken(folder: Path) -> dict[str, int]:
    """The rows that each node says it took."""
    return {node: entry["rows"] for node, entries in nodes.notes(folder).items() for entry in entries if "rows" in entry}


def both_are_there(folder: Path) -> bool:
    return set(nodes.notes(folder)) == {"worker:0", "worker:1"}


def test_nodes_that_return_early_end_the_feed_at_once_and_well(
    sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path
) -> None:
    with started_cluster(sc, nodes.return_early, {"folder": str(tmp_path), "rows": 10}) as running:
        started = time.monotonic()
        report = running.train(rows, num_epochs=3, feed_timeout=600)
        seconds = time.monotonic() - started
        running.shutdown()
    assert seconds < 10
    assert taken(tmp_path) == {"worker:0": 10, "worker:1": 10}
    # What was not consumed is in the numbers: 20 rows of 400, and the partitions that nobody wanted.
    assert report.rows == 20
    assert report.partitions_discarded >= 2
    assert running.report().first_failure is None


def test_a_killed_tensorflow_process_is_told_within_5_seconds(
    sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path
) -> None:
    with (
        pytest.raises(NodeFailedError, match=r"worker:1 .*signal 9 \(SIGKILL\)") as failure,
        started_cluster(sc, nodes.stay, {"folder": str(tmp_path)}) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        feeding = pool.submit(running.train, rows)
        poll_until(lambda: both_are_there(tmp_path), 30, what="both nodes are in a step")
        note = nodes.notes(tmp_path)["worker:1"][0]
        os.kill(note["pid"], signal.SIGKILL)
        killed = time.monotonic()
        error = feeding.exception(30)
        assert time.monotonic() - killed < 5
        assert error is not None
        raise error
    assert (failure.value.node, failure.value.host, failure.value.signal) == ("worker:1", "127.0.0.1", 9)
    assert "step 1 of worker:1 begins" in "\n".join(failure.value.last_lines)
    assert read_process(note["child"]) is None


def test_train_without_epochs_feeds_every_row_once(sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path) -> None:
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}) as running:
        report = running.train(rows)
        running.shutdown()
    assert (report.rows, report.epochs) == (EVERY_ROW, 1)
    assert sum(taken(tmp_path).values()) == EVERY_ROW


def test_train_feeds_as_many_epochs_as_asked_and_may_be_called_again(
    sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path
) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
        assert running.train(rows, num_epochs=2).rows == 2 * EVERY_ROW
        assert running.train(rows, num_epochs=1).rows == EVERY_ROW
        running.shutdown()
        assert running.report().rows == 3 * EVERY_ROW
    assert sum(taken(tmp_path).values()) == 3 * EVERY_ROW
    assert [event.rows for event in events.all("feed_finished")] == [EVERY_ROW] * 3


def test_epochs_after_the_first_come_from_the_nodes(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    """Kept in memory in one call, on disk and shuffled in another. Kills are in the slow tier, the rest in the unit tests."""
    data = [([number / 3, -0.0], number, f"row {number}") for number in range(60)]
    rdd, epochs, events = sc.parallelize(data, 4), 3, Recorder()
    options = {"cache": NodeCache()}
    with started_cluster(sc, nodes.note_rows, {"folder": str(tmp_path)}, on_event=events, options=options) as running:
        for cache in (None, NodeCache(memory_bytes=0, shuffle=True)):
            report = running.train(rdd, num_epochs=epochs, cache=cache)
            assert (report.rows, report.epochs, report.partitions) == (60 * epochs, epochs, 4 * epochs)
        running.shutdown()
    fed = events.all("feed_finished")
    assert [(event.cached, event.rows) for event in fed] == [(False, 60), (True, 60), (True, 60)] * 2
    for call in (fed[:epochs], fed[epochs:]):
        assert all(event.rows_per_node == call[0].rows_per_node for event in call)
    texts = Counter(text for found in nodes.notes(tmp_path).values() for note in found for text in note.get("rows", ()))
    assert texts == Counter({repr(row): 2 * epochs for row in data})
    assert "cache-not-used" not in {warning.id for warning in events.all("warning")}


def test_steps_that_are_slow_but_go_on_are_no_timeout(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    args = {"folder": str(tmp_path), "batch_size": 10, "step_s": 0.4}
    with started_cluster(sc, nodes.consume_slowly, args) as running:
        started = time.monotonic()
        report = running.train(sc.parallelize(range(200), 2), feed_timeout=2)
        assert time.monotonic() - started > 2.5, "the test proves nothing when a partition takes no longer than the timeout"
        running.shutdown()
    assert report.rows == 200


def test_a_node_that_takes_no_row_is_a_timeout_once_and_names_the_node(
    sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path
) -> None:
    with (
        pytest.raises(FeedTimeoutError, match=r"worker:[01]") as failure,
        started_cluster(sc, nodes.ignore_feed, {"folder": str(tmp_path)}) as running,
    ):
        poll_until(lambda: both_are_there(tmp_path), 30, what="both nodes run")
        started = time.monotonic()
        try:
            running.train(rows, feed_timeout=3)
        finally:
            seconds = time.monotonic() - started
    # Spark would try a failed task four times.
    assert 3 <= seconds < 9
    assert failure.value.node in {"worker:0", "worker:1"}


def test_three_partitions_on_two_nodes_are_reported_by_node(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
        report = running.train(sc.parallelize(range(300), 3))
        running.shutdown()
    assert report.rows == 300
    assert dict(report.rows_per_node) == taken(tmp_path)
    assert dict(events.all("feed_finished")[0].rows_per_node) == taken(tmp_path)


def test_a_consumer_slower_than_spark_holds_spark_back(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    megabyte, count = 1 << 20, 160
    args = {"folder": str(tmp_path), "batch_size": 2, "step_s": 0.05}
    data = sc.parallelize(range(count), 2).map(lambda number: bytes([number % 256]) * megabyte)
    with started_cluster(sc, nodes.consume_slowly, args, options={"feed_budget_bytes": 4 * megabyte}) as running:
        assert running.train(data).rows == count
        running.shutdown()
    grown = [entry["grown_bytes"] for entries in nodes.notes(tmp_path).values() for entry in entries]
    # About 80 MB came to each node; a queue without bounds holds most of it before the first steps are over.
    assert all(value < 40 * megabyte for value in grown), grown


def test_an_error_after_the_feed_has_ended_is_not_lost(sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(NodeFailedError, match=r"worker:0 .*No space left on device") as failure,
        started_cluster(sc, nodes.fail_after_feed, {"folder": str(tmp_path), "after_s": 2}) as running,
    ):
        assert running.train(rows).rows == EVERY_ROW
        running.shutdown()
    assert "in fail_after_feed" in failure.value.remote_traceback


def test_a_run_that_is_stopped_while_feeding_leaves_nothing(
    sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path
) -> None:
    cancellation = Cancellation()
    options = {"cancellation": cancellation}
    with (
        pytest.raises(InterruptedRunError, match="Ctrl-C"),
        started_cluster(sc, nodes.stay, {"folder": str(tmp_path)}, options=options) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        feeding = pool.submit(running.train, rows)
        poll_until(lambda: both_are_there(tmp_path), 30, what="both nodes are in a step")
        stopped = time.monotonic()
        cancellation.request("Ctrl-C")
        assert isinstance(feeding.exception(30), InterruptedRunError)
        assert time.monotonic() - stopped < 8
        running.shutdown()


@pytest.mark.parametrize(
    ("partitions", "sizes"),
    [(1, [120]), (3, [120, 40, 80]), (3, [80, 0, 0]), (2, [0, 0])],
    ids=["one partition", "three partitions", "empty partitions", "no row at all"],
)
def test_uneven_partitions_end_for_every_node(
    sc: SparkContext, nothing_left: None, tmp_path: Path, partitions: int, sizes: list[int]
) -> None:
    data = sc.parallelize(range(partitions), partitions).flatMap(lambda number: range(sizes[number]))
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}) as running:
        report = running.train(data, num_epochs=2, feed_timeout=60)
        running.shutdown(timeout=60)
    assert report.rows == 2 * sum(sizes) == sum(taken(tmp_path).values())


@pytest.mark.parametrize("sizes", [[120], [120, 40, 80], [80, 0]], ids=["one partition", "three partitions", "an empty partition"])
def test_synchronous_training_ends_on_uneven_partitions(
    sc: SparkContext, nothing_left: None, tmp_path: Path, sizes: list[int]
) -> None:
    data = sc.parallelize(range(len(sizes)), len(sizes)).flatMap(lambda number: [(float(i), 2.0 * i) for i in range(sizes[number])])
    args = {"folder": str(tmp_path), "batch_size": 16}
    options: dict[str, Any] = {"keras": "legacy"}
    with started_cluster(sc, nodes.train_synchronously, args, options=options) as running:
        report = running.train(data, feed_timeout=120, final=True)
        running.shutdown(timeout=120)
    found = nodes.notes(tmp_path)
    assert report.rows == sum(sizes)
    # Synchronous: both made the same steps and have the same weights.
    assert found["worker:0"][0]["steps"] == found["worker:1"][0]["steps"] > 0
    assert found["worker:0"][0]["weights"] == found["worker:1"][0]["weights"]


def test_epochs_of_different_lengths_are_trained_to_the_end(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    """As when partitions of several sizes go to other nodes in each epoch; here the lengths are made by hand."""
    args = {"folder": str(tmp_path), "batch_size": 16}
    options: dict[str, Any] = {"keras": "legacy", "num_epochs": 4}
    with started_cluster(sc, nodes.train_synchronously, args, options=options) as running:
        for position, rows in enumerate((80, 32, 160, 16)):
            data = sc.parallelize([(float(i), 2.0 * i) for i in range(rows)], 1)
            assert running.train(data, feed_timeout=120, final=position == 3).rows == rows
        running.shutdown(timeout=120)
    for node in ("worker:0", "worker:1"):
        (noted,) = nodes.notes(tmp_path)[node]
        # One node has the only partition; its batches of 16 are 8 for each of the two, in as many steps.
        assert (noted["epochs"], noted["steps"]) == ([0, 1, 2, 3], (80 + 32 + 160 + 16) // 8)


def test_equal_steps_keep_a_loop_of_the_programs_own_together(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    """One node has rows for 20 batches, the other one for 4; each step waits for both."""
    sizes = [330, 70]
    data = sc.parallelize(range(2), 2).flatMap(lambda number: [(float(i % 7), 2.0 * (i % 7)) for i in range(sizes[number])])
    args = {"folder": str(tmp_path), "batch_size": 16, "loop": example_loop()}
    options: dict[str, Any] = {"equal_steps": True, "num_epochs": 2}
    events = Recorder()
    with started_cluster(sc, nodes.loop_synchronously, args, options=options, on_event=events) as running:
        report = running.train(data, num_epochs=2, feed_timeout=120, final=True)
        running.shutdown(timeout=120)
        whole = running.report()
    found = nodes.notes(tmp_path)
    one, other = found["worker:0"][0], found["worker:1"][0]
    assert one["steps"] == other["steps"] == 8
    assert one["weights"] == other["weights"] != [0.0]
    assert one["sizes"] == other["sizes"] == [16]
    assert report.rows == 2 * sum(sizes)
    assert whole.steps_per_node == {"worker:0": 8, "worker:1": 8}
    # Which node gets which partition may differ between the epochs.
    assert sum(whole.left_over.values()) == 2 * ((70 - 64) + (330 - 64))
    assert [event.id for event in events.all("warning")].count("rows-left-over") == 1


def test_a_node_without_rows_is_an_error_of_equal_steps(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    args = {"folder": str(tmp_path), "batch_size": 16, "loop": example_loop()}
    with (
        pytest.raises(FeedError, match=r"worker:[01] got no row") as failure,
        started_cluster(sc, nodes.loop_synchronously, args, options={"equal_steps": True}) as running,
    ):
        # Everything is delivered, so that only the shutdown can tell.
        running.train(sc.parallelize([(1.0, 2.0)] * 50, 1), feed_timeout=120, final=True)
        running.shutdown(timeout=120)
    assert "repartition" in str(failure.value.hint)


def test_only_one_train_call_runs_at_a_time(sc: SparkContext, nothing_left: None, rows: Any, tmp_path: Path) -> None:
    args = {"folder": str(tmp_path), "batch_size": 10, "step_s": 0.1}
    with started_cluster(sc, nodes.consume_slowly, args) as running, ThreadPoolExecutor(1) as pool:
        busy = threading.Event()

        def feed() -> Any:
            busy.set()
            return running.train(rows)

        feeding = pool.submit(feed)
        assert busy.wait(10)
        poll_until(lambda: sc.statusTracker().getActiveJobsIds(), 20, what="the first call feeds")
        with pytest.raises(ClusterStateError, match="already running"):
            running.train(rows)
        assert feeding.result(60).rows == EVERY_ROW
        running.shutdown()
