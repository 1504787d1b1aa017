"""The coordinator with a fake Spark: jobs are functions that speak for hubs and feed tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tfos_core.errors import ChannelClosedError, ClusterStateError, FeedError, FeedTimeoutError, NodeFailedError
from tfos_core.events import Event, FeedFinished, FeedProgress, Warned
from tfos_core.feed import coordinator as module
from tfos_core.feed.coordinator import FeedCoordinator
from tfos_core.feed.failures import to_wire
from tfos_core.feed.tasks import Outcome

DEADLINE = 20.0


@dataclass
class FakeContext:
    """The few calls of a SparkContext that the coordinator makes."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    tags: list[str] = field(default_factory=list)
    properties: dict[str, str | None] = field(default_factory=dict)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        assert tag in self.tags
        self.cancelled.set()

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value


@dataclass
class FakeJob:
    """An RDD of feed tasks: `run(epoch)` gives the outcomes."""

    partitions: int
    run: Callable[[int], list[Outcome]]
    epoch: int = 0

    def getNumPartitions(self) -> int:  # noqa: N802 - Spark's name
        return self.partitions

    def collect(self) -> list[str]:
        self.epoch += 1
        return [outcome.to_json() for outcome in self.run(self.epoch - 1)]


@dataclass
class Bench:
    coordinator: FeedCoordinator
    sent: list[tuple[str, dict[str, Any]]]
    events: list[Event]
    sc: FakeContext

    def train(self, partitions: int, run: Callable[[int], list[Outcome]], **kwargs: Any) -> Any:
        return self.coordinator.train(self.sc, FakeJob(partitions, run), **kwargs)

    def ends(self) -> list[tuple[str, int, bool]]:
        return [(node, message["seq"], message["final"]) for node, message in self.sent if message["op"] == "feed.end"]

    def fed(self, node: str, partition: int, rows: int, seq: int = 0) -> Outcome:
        for op in ("feed.claim", "feed.drained"):
            self.coordinator.handle(node, {"op": op, "seq": seq, "partition": partition, "attempt": 0, "rows": rows})
        return Outcome(partition=partition, state="drained", node=node, rows=rows)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "feed_rdd", lambda data, target: data)
    monkeypatch.setattr(module, "_CAUSE_S", 0.2)
    sent: list[tuple[str, dict[str, Any]]] = []
    events: list[Event] = []
    times = iter(range(100_000))
    made = FeedCoordinator(
        ["a", "b"], lambda node, message: sent.append((node, message)), events.append, clock=lambda: float(next(times))
    )
    return Bench(made, sent, events, FakeContext())


def test_every_epoch_ends_on_every_node_and_the_last_one_ends_the_feed(bench: Bench) -> None:
    report = bench.train(2, lambda epoch: [bench.fed("a", 0, 10, epoch), bench.fed("b", 1, 8, epoch)], num_epochs=2, final=True)
    assert sorted(bench.ends()) == [("a", 0, False), ("a", 1, True), ("b", 0, False), ("b", 1, True)]
    assert (report.epochs, report.partitions, report.rows, dict(report.rows_per_node)) == (2, 4, 36, {"a": 20, "b": 16})
    assert [event.rows for event in bench.events if isinstance(event, FeedFinished)] == [18, 18]
    assert any(isinstance(event, FeedProgress) for event in bench.events)
    assert bench.sc.tags == []
    with pytest.raises(ClusterStateError):
        bench.train(1, lambda _: [])


def test_zero_epochs_means_one(bench: Bench) -> None:
    assert bench.train(1, lambda _: [bench.fed("a", 0, 3)], num_epochs=0).epochs == 1


def test_outcomes_count_where_a_nodes_own_message_is_late(bench: Bench) -> None:
    report = bench.train(1, lambda _: [Outcome(partition=0, state="drained", node="a", rows=7)])
    assert report.rows == 7
    assert {node for node, _, _ in bench.ends()} == {"a", "b"}


def test_a_skew_and_an_empty_node_are_warned_about(bench: Bench) -> None:
    bench.train(2, lambda _: [bench.fed("a", 0, 100), bench.fed("b", 1, 10)])
    bench.train(1, lambda _: [bench.fed("a", 0, 100, 1)])
    warnings = [event for event in bench.events if isinstance(event, Warned)]
    assert [warning.id for warning in warnings] == ["feed-skew", "feed-empty-node"]
    assert "100 on a, 10 on b" in warnings[0].message
    assert "locality.wait" in warnings[0].hint
    bench.train(2, lambda _: [bench.fed("a", 0, 100, 2), bench.fed("b", 1, 10, 2)])
    assert len([event for event in bench.events if isinstance(event, Warned)]) == 2, "each is told once"


def test_an_abort_cancels_the_job_and_the_first_error_wins(bench: Bench) -> None:
    def run(_: int) -> list[Outcome]:
        assert bench.sc.cancelled.wait(DEADLINE)
        raise RuntimeError("job cancelled")

    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(bench.train, 1, run)
        while not bench.sc.tags:
            threading.Event().wait(0.01)
        bench.coordinator.abort(NodeFailedError("node a failed: boom"))
        bench.coordinator.abort(FeedError("later"))
        with pytest.raises(NodeFailedError, match="boom"):
            trained.result(DEADLINE)
    with pytest.raises(NodeFailedError):
        bench.train(1, lambda _: [])


def test_a_hubs_failure_aborts(bench: Bench) -> None:
    def run(_: int) -> list[Outcome]:
        bench.coordinator.handle("a", {"op": "feed.failed", "error": to_wire(FeedTimeoutError("slow"))})
        raise RuntimeError("job cancelled")

    with pytest.raises(FeedTimeoutError, match="slow"):
        bench.train(1, run)
    assert isinstance(bench.coordinator.error, FeedTimeoutError)
    assert bench.sc.cancelled.is_set()


def test_a_failure_while_nothing_is_trained_reaches_the_cluster() -> None:
    """Inference runs in jobs of the caller's, so that no call of the coordinator can raise it."""
    told: list[Exception] = []
    coordinator = FeedCoordinator(["a"], lambda *_: None, lambda _: None, on_error=told.append)
    coordinator.handle("a", {"op": "feed.failed", "error": to_wire(FeedTimeoutError("no result for 3 seconds"))})
    assert [str(error) for error in told] == ["no result for 3 seconds"]
    assert isinstance(coordinator.error, FeedTimeoutError)


def test_a_failed_outcome_is_the_error_when_nobody_knows_better(bench: Bench) -> None:
    outcome = Outcome(partition=0, state="failed", node="a", error=to_wire(FeedError("the node a is gone")))
    with pytest.raises(FeedError, match="the node a is gone"):
        bench.train(1, lambda _: [outcome])


def test_when_all_nodes_have_closed_the_rest_is_discarded_and_that_is_success(bench: Bench) -> None:
    def run(_: int) -> list[Outcome]:
        bench.fed("a", 0, 5)
        bench.coordinator.handle("a", {"op": "feed.closed", "seq": 0, "node_rows": 5})
        assert not bench.sc.cancelled.is_set()
        bench.coordinator.node_ended("b")
        assert bench.sc.cancelled.wait(DEADLINE)
        raise RuntimeError("job cancelled")

    report = bench.train(10, run, num_epochs=3)
    assert (report.epochs, report.rows, report.partitions_discarded) == (1, 5, 9)


def test_a_gone_node_does_not_stop_the_end_for_others(bench: Bench) -> None:
    def send(node: str, message: dict[str, Any]) -> None:
        if node == "a":
            raise ChannelClosedError("gone")
        bench.sent.append((node, message))

    bench.coordinator._send = send
    bench.train(1, lambda _: [bench.fed("b", 0, 5)])
    assert bench.ends() == [("b", 0, False)]


def test_a_partition_fed_twice_is_an_error(bench: Bench) -> None:
    def run(_: int) -> list[Outcome]:
        return [bench.fed("a", 0, 5), bench.fed("b", 0, 5)]

    with pytest.raises(FeedError, match="partition 0 was fed twice, to a and b"):
        bench.train(2, run)


def test_the_end_of_the_feed_is_told_once(bench: Bench) -> None:
    bench.coordinator.end_of_feed()
    bench.coordinator.end_of_feed()
    assert bench.sent == [("a", {"op": "feed.end_of_feed"}), ("b", {"op": "feed.end_of_feed"})]
