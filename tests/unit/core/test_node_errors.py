from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import NodeFailedError, NodeLostError
from tfos_core.executor_loss import loss_reason
from tfos_core.feed.coordinator import FeedReport
from tfos_core.node_errors import explained, failed_event, node_error
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


OVER = "Container killed by YARN for exceeding physical memory limits. 1.1 GB of 1 GB physical memory used."
LOST = Outcome(ok=False, error="worker:1 went away without a word", lost=True)


def context(master: str, *removed: tuple[str, str | None]) -> Any:
    """What a SparkContext's JVM knows of executors that it has removed: host, and why."""
    executors = [
        SimpleNamespace(
            hostPort=lambda host=host: f"{host}:7",
            isActive=lambda reason=reason: reason is None,
            removeReason=lambda reason=reason: SimpleNamespace(isDefined=lambda: reason is not None, get=lambda: reason),
        )
        for host, reason in removed
    ]
    listed = SimpleNamespace(size=lambda: len(executors), apply=executors.__getitem__)
    store = SimpleNamespace(executorList=lambda _active: listed)
    return SimpleNamespace(master=master, _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)))


@pytest.mark.parametrize(
    ("sc", "reason"),
    [
        (context("yarn", ("h", "gone"), ("g", OVER)), OVER),
        (context("yarn", ("g", "gone"), ("h", "preempted\n by  root.ml")), "preempted by root.ml"),
        (context("k8s://x", ("h", None), ("g", "gone")), ""),
        (context("spark://h:1", ("h", OVER)), ""),
        (SimpleNamespace(master="yarn"), ""),
    ],
)
def test_why_an_executor_is_gone_is_what_spark_heard_from_the_manager(sc: Any, reason: str) -> None:
    assert loss_reason(sc, "h", wait_s=0.0) == reason


def test_a_node_that_was_lost_to_the_memory_limit_is_named_as_such() -> None:
    told: list[Any] = []
    explained(context("yarn", ("h", OVER)), told.append)(failure(LOST))
    error = node_error(told[0])
    assert type(error) is NodeLostError
    assert str(error) == f"worker:1 (executor 3 on h) failed: its executor is gone: {OVER}"
    assert "spark.executor_memory_overhead" in (error.hint or "")


def test_a_node_that_failed_by_itself_is_told_as_it_is() -> None:
    told: list[Any] = []
    explained(context("yarn", ("h", OVER)), told.append)(failure(KILLED))
    assert told == [failure(KILLED)]
