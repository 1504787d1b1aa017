from __future__ import annotations

from typing import Any

import pytest

from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.node_news import NodeNews
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.options import ClusterOptions
from tfos_core.outcome import Outcome
from tfos_core.reservation import NodeRecord
from tfos_core.tensorboard.board import ClusterBoard
from tfos_core.tensorboard.options import TensorBoardOptions
from tfos_core.topology import ClusterPlan, InputMode, Role

WELL = Outcome(ok=True)
BADLY = Outcome(ok=False, error="ValueError: x", exit_code=1, traceback="Traceback")


class Watch:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.failures: list[NodeFailure] = []

    def noticed(self, failure: NodeFailure) -> None:
        self.failures.append(failure)


class Feed:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def handle(self, node: str, message: dict[str, Any]) -> None:
        self.heard.append((node, message["op"]))

    def node_ended(self, node: str) -> None:
        self.heard.append((node, "ended"))


class Bench:
    """The news of a cluster of a chief, a worker and a ps."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.output: list[tuple[str, list[str]]] = []
        options = ClusterOptions(on_event=self.events.append, on_output=lambda node, lines: self.output.append((node, list(lines))))
        self.table = NodeTable(ClusterPlan.build(3, num_ps=1, master_node="chief"), InputMode.SPARK)
        self.watch: Any = Watch()
        self.feed: Any = Feed()
        self.report = ClusterReport()
        board = ClusterBoard(TensorBoardOptions(), node="", sink=None, emit=self.events.append)
        self.news = NodeNews(self.table, self.watch, options, self.report, board)
        self.news.feed = self.feed

    def register(self, *roles: Role) -> None:
        for number, role in enumerate(roles):
            self.news.on_registered(
                NodeRecord(executor_id=number, role=role, index=0, host=f"h{number}", port=1, pid=2, generation="g")
            )

    def end(self, node: str, outcome: Outcome) -> None:
        self.news.on_message(node, {"op": "node.ended", **outcome.to_dict(), "last_lines": ["last"]})


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.register(Role.PS, Role.CHIEF, Role.WORKER)
    return made


def test_registrations_are_counted_and_the_table_follows(bench: Bench) -> None:
    told = [event for event in bench.events if isinstance(event, events.NodeRegistered)]
    assert [(event.node, event.registered) for event in told] == [("ps:0", 1), ("chief:0", 2), ("worker:0", 3)]
    assert {event.expected for event in told} == {3}
    assert bench.table.missing() == ()


def test_messages_go_where_they_belong(bench: Bench) -> None:
    bench.news.on_message("worker:0", {"op": "feed.progress"})
    bench.news.on_message("worker:0", {"op": "node.output", "lines": ["a", "b"], "dropped": 0})
    bench.news.on_message("worker:0", {"op": "node.output", "lines": [], "dropped": 7})
    bench.news.on_message("chief:0", {"op": "node.export", "path": "/x"})
    bench.news.on_message("chief:0", {"op": "node.warning", "id": "i", "message": "m", "hint": "h"})
    assert bench.feed.heard == [("worker:0", "feed.progress")]
    assert bench.output[0] == ("worker:0", ["a", "b"])
    assert bench.output[1][1][0].startswith("[7 lines were left out here")
    assert bench.report.exports == ["/x"]
    assert bench.events[-1] == events.Warned(id="i", message="m", hint="h")


def test_a_message_of_a_newer_node_is_logged_and_ignored(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.news.on_message("worker:0", {"op": "node.news"})
    assert "node worker:0 sent a message of unknown kind 'node.news'" in caplog.text


def test_a_good_end_is_told_to_the_user_and_to_the_feed(bench: Bench) -> None:
    bench.news.on_message("worker:0", {"op": "node.started"})
    bench.end("worker:0", WELL)
    assert isinstance(bench.events[-1], events.NodeFinished)
    assert bench.feed.heard == [("worker:0", "ended")]
    bench.news.on_disconnect("worker:0")
    assert bench.watch.failures == []


def test_a_bad_end_is_told_to_the_watch_only(bench: Bench) -> None:
    bench.end("worker:0", BADLY)
    bench.news.on_disconnect("worker:0")
    assert [(failure.node, failure.host, failure.last_lines) for failure in bench.watch.failures] == [("worker:0", "h2", ("last",))]
    assert bench.watch.failures[0].outcome == BADLY
    assert bench.feed.heard == []
    assert not any(isinstance(event, events.NodeFinished) for event in bench.events)


def test_a_channel_that_closes_without_a_word_is_a_lost_node(bench: Bench) -> None:
    bench.news.on_disconnect("worker:0")
    (failure,) = bench.watch.failures
    assert failure.outcome.lost
    assert "worker:0 went away without a word" in failure.outcome.error


def test_a_channel_that_closes_at_the_end_is_not(bench: Bench) -> None:
    bench.table.expect_goodbyes()
    bench.news.on_disconnect("worker:0")
    assert bench.watch.failures == []
    assert bench.table.connected() == ("ps:0", "chief:0")


def test_a_ps_that_returns_while_others_train_is_a_warning(bench: Bench) -> None:
    bench.end("ps:0", WELL)
    assert [event.id for event in bench.events if isinstance(event, events.Warned)] == ["ps-ended-early"]
