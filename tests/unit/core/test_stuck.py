"""Deadlines that pass: what their errors say of the nodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tfos_core import stuck
from tfos_core.errors import ChannelClosedError, FeedError, FeedTimeoutError, TfosError
from tfos_core.events import Event, NodeFailed
from tfos_core.exit_codes import ExitCode, exit_code_of
from tfos_core.node_table import NodeTable
from tfos_core.outcome import Outcome
from tfos_core.stuck import StuckNodes
from tfos_core.topology import ClusterPlan, InputMode

ANSWER = {"place": "train_step (app.py:17)", "stack": "Main thread ...", "last_lines": ["step 1"]}
TIMEOUT = FeedTimeoutError("node worker:1 consumed no row for 3 seconds (partition 2)", "Does it?", "worker:1", 2)


class Cluster:
    """Two nodes; those in `answers` say where they are, in another thread as the server does."""

    def __init__(self, **answers: Mapping[str, Any]) -> None:
        self.table = NodeTable(ClusterPlan.build(2), InputMode.SPARK)
        for index in range(2):
            self.table.registered(f"worker:{index}", f"host-{index}")
            self.table.running(f"worker:{index}")
        self.events: list[Event] = []
        self.asked: dict[str, str] = {}
        self.answers = answers
        self.stuck = StuckNodes(self.table, self.events.append, "run-1")
        self.stuck.send = self.send

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        if node not in self.table.connected():
            raise ChannelClosedError(node)
        assert message["op"] == "node.ask_stacks"
        self.asked[node] = message["why"]
        answer = self.answers.get(node.replace(":", "_"))
        if answer is not None:
            threading.Thread(target=self.stuck.answered, args=(node, answer)).start()

    @property
    def failure(self) -> NodeFailed:
        (event,) = self.events
        assert isinstance(event, NodeFailed)
        return event


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck, "_ANSWERS_S", 0.1)


def test_a_feed_timeout_says_which_node_is_where_and_is_its_failure() -> None:
    cluster = Cluster(worker_1=ANSWER)
    error = cluster.stuck.explain(TIMEOUT)
    said = "consumed no row for 3 seconds (partition 2); it is in train_step (app.py:17)"
    assert str(error) == f"worker:1 (executor 1 on host-1) {said}"
    assert exit_code_of(error) is ExitCode.FEEDING
    assert (error.hint, error.__notes__) == ("Does it?", ["worker:1: Main thread ..."])
    failure = cluster.failure
    assert (failure.node, failure.host, failure.error, failure.first) == ("worker:1", "host-1", said, True)
    assert (failure.traceback, failure.last_lines) == ("Main thread ...", ("step 1",))
    # The other node may be what it waits for.
    assert set(cluster.asked) == {"worker:0", "worker:1"}
    assert cluster.asked["worker:0"] == "worker:1: it consumed no row for 3 seconds (partition 2)"
    assert cluster.table.first_failure() is not None


@pytest.mark.parametrize("answers", [{}, {"worker_1": {"place": "", "stack": "", "last_lines": []}}])
def test_a_node_that_does_not_answer_keeps_nobody(answers: dict[str, Any]) -> None:
    error = Cluster(**answers).stuck.explain(TIMEOUT)
    assert str(error).endswith("(partition 2); its process does not say where it is")
    assert not hasattr(error, "__notes__")


def test_other_errors_and_those_of_nodes_that_have_ended_stay_as_they_are() -> None:
    cluster = Cluster()
    for other in (FeedError("x", None, "worker:1"), FeedTimeoutError("nobody")):
        assert cluster.stuck.explain(other) is other
    cluster.table.ended("worker:1", Outcome(ok=True))
    assert cluster.stuck.explain(TIMEOUT) is TIMEOUT
    assert cluster.events == []


def test_a_shutdown_that_is_over_says_where_the_first_node_is_and_names_the_others() -> None:
    cluster = Cluster(worker_0=ANSWER)
    error = cluster.stuck.not_ended(("worker:0", "worker:1"), "60 s of shutdown")
    assert str(error) == (
        "worker:0 (executor 0 on host-0) did not end within 60 s of shutdown; it is in train_step (app.py:17) (nor did worker:1)"
    )
    assert exit_code_of(error) is ExitCode.USER_CODE
    assert (error.node, error.host, error.remote_traceback) == ("worker:0", "host-0", "Main thread ...")
    assert "tfos logs run-1" in str(error.hint)
    assert cluster.failure.node == "worker:0"


def test_the_servers_thread_does_not_wait_for_answers_that_it_brings() -> None:
    cluster, done = Cluster(worker_1=ANSWER), threading.Event()
    told: list[tuple[TfosError, str]] = []

    def then(error: TfosError) -> None:
        told.append((error, threading.current_thread().name))
        done.set()

    cluster.stuck.explain_later(FeedError("x"), then)
    assert told[0][1] == threading.current_thread().name
    done.clear()
    cluster.stuck.explain_later(TIMEOUT, then)
    assert done.wait(10)
    assert told[1][1] != threading.current_thread().name
    assert "train_step" in str(told[1][0])
