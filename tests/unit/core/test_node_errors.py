from __future__ import annotations

import pickle

from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import NodeFailedError, NodeLostError
from tfos_core.feed.coordinator import FeedReport
from tfos_core.node_errors import failed_event, node_error
from tfos_core.node_table import NodeFailure
from tfos_core.outcome import Outcome


def failure(outcome: Outcome) -> NodeFailure:
    return NodeFailure(node="worker:1", host="h", executor_id=3, outcome=outcome, last_lines=("a", "b"))


KILLED = Outcome(ok=False, error="the process of worker:1 was killed by signal 9 (SIGKILL)", signal=9, exit_code=137)


def test_the_error_says_which_node_where_and_what_to_look_at() -> None:
    error = node_error(failure(KILLED), "run-1")
    assert type(error) is NodeFailedError
    assert str(error).startswith("worker:1 (executor 3 on h) failed: the process of worker:1 was killed")
    assert error.hint == "See tfos logs run-1 --node worker:1."
    assert (error.node, error.signal, error.last_lines) == ("worker:1", 9, ("a", "b"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.hint, again.last_lines) == (str(error), error.hint, error.last_lines)


def test_without_a_run_the_hint_is_the_executors_folder() -> None:
    assert "the output of worker:1 in its executor's folder" in str(node_error(failure(KILLED)).hint)


def test_a_lost_node_is_worth_another_try() -> None:
    error = node_error(failure(Outcome(ok=False, error="the JVM ended", lost=True)), "run-1")
    assert type(error) is NodeLostError
    assert "Start the job again" in str(error.hint)


def test_the_event_says_the_same() -> None:
    event = failed_event(failure(KILLED), first=True)
    assert (event.node, event.signal, event.exit_code, event.last_lines, event.first) == ("worker:1", 9, 137, ("a", "b"), True)


def test_a_report_adds_up_and_its_copy_stays_as_it_was() -> None:
    report = ClusterReport()
    feed = FeedReport(
        epochs=1, partitions=3, rows=7, seconds=1.23456, rows_per_node={"worker:0": 3, "worker:1": 4}, partitions_discarded=1
    )
    report.add_feed(feed)
    report.add_feed(feed)
    report.exports.append("/x")
    copy = report.copy(first_failure=failed_event(failure(KILLED), first=True))
    report.add_feed(feed)
    report.exports.append("/y")
    assert (copy.rows, copy.rows_per_node, copy.partitions_discarded) == (14, {"worker:0": 6, "worker:1": 8}, 2)
    assert copy.timings == {"feed_s": 2.469}
    assert copy.exports == ["/x"]
    assert copy.first_failure is not None and report.first_failure is None
