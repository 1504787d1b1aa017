"""Which nodes end by themselves, which are stopped, and which failures count."""

from __future__ import annotations

import pytest

from tfos_core.node_table import NodeTable
from tfos_core.outcome import Outcome
from tfos_core.topology import ClusterPlan, InputMode

TENSORFLOW, SPARK = InputMode.TENSORFLOW, InputMode.SPARK
WELL = Outcome(ok=True)
BADLY = Outcome(ok=False, error="killed", signal=9)


def running(mode: InputMode, workers: int = 2, *, num_ps: int = 0, chief: bool = True, eval_node: bool = False) -> NodeTable:
    """A cluster whose nodes all run."""
    total = workers + num_ps + chief + eval_node
    plan = ClusterPlan.build(total, num_ps=num_ps, master_node="chief" if chief else None, eval_node=eval_node)
    table = NodeTable(plan, mode)
    for slot in plan.slots:
        table.registered(slot.name, "127.0.0.1")
        table.running(slot.name)
    return table


@pytest.mark.parametrize("mode", list(InputMode))
def test_ps_and_evaluator_are_not_waited_for(mode: InputMode) -> None:
    table = running(mode, workers=1, num_ps=2, eval_node=True)
    assert table.unfinished() == ("chief:0", "worker:0")
    table.ended("chief:0", WELL)
    table.ended("worker:0", WELL)
    assert table.unfinished() == ()
    assert table.evaluating() == ("evaluator:0",)


def test_a_node_that_has_not_started_is_waited_for() -> None:
    table = NodeTable(ClusterPlan.build(2), TENSORFLOW)
    table.registered("worker:0", "127.0.0.1")
    assert table.unfinished() == ("worker:0", "worker:1")


def test_workers_with_servers_serve_a_coordinator_that_has_none() -> None:
    table = running(TENSORFLOW, num_ps=1)
    for worker in ("worker:0", "worker:1"):
        table.has_server(worker)
    assert table.unfinished() == ("chief:0",)
    table.ended("chief:0", WELL)
    assert table.unfinished() == ()


def test_workers_end_by_themselves_when_all_that_train_have_servers() -> None:
    table = running(TENSORFLOW, num_ps=1)
    for node in ("worker:1", "chief:0", "worker:0"):
        table.has_server(node)
        assert table.unfinished(), "somebody trains at every moment of the start"
    assert table.unfinished() == ("chief:0", "worker:0", "worker:1")
    table.ended("chief:0", WELL)
    assert table.unfinished() == ("worker:0", "worker:1")


def test_a_worker_that_is_fed_is_waited_for_although_it_has_a_server() -> None:
    table = running(SPARK, num_ps=1)
    table.has_server("worker:0")
    assert table.unfinished() == ("chief:0", "worker:0", "worker:1")


@pytest.mark.parametrize("mode", list(InputMode))
def test_a_node_in_join_is_never_waited_for(mode: InputMode) -> None:
    table = running(mode)
    table.joined("worker:1")
    assert table.unfinished() == ("chief:0", "worker:0")


def test_a_cluster_where_all_nodes_serve_has_nobody_to_wait_for_and_nobody_who_trained() -> None:
    table = running(TENSORFLOW, num_ps=1)
    for node in ("chief:0", "worker:0", "worker:1"):
        table.has_server(node)
        table.joined(node)
    assert table.unfinished() == ()
    assert not table.has_trained()


def test_somebody_has_trained_when_a_chief_has_ended() -> None:
    table = running(TENSORFLOW)
    table.joined("worker:0")
    table.ended("chief:0", WELL)
    assert table.has_trained()


@pytest.mark.parametrize("server", ["ps:0", "worker:0"])
def test_a_serving_node_that_dies_while_others_train_is_a_failure(server: str) -> None:
    table = running(TENSORFLOW, workers=1, num_ps=1)
    table.joined("worker:0")
    failure = table.ended(server, BADLY)
    assert failure is not None
    assert table.first_failure() == failure


@pytest.mark.parametrize("server", ["ps:0", "worker:0"])
def test_a_server_that_breaks_when_the_others_are_done_is_no_failure(server: str) -> None:
    table = running(TENSORFLOW, workers=1, num_ps=1)
    table.joined("worker:0")
    table.ended("chief:0", WELL)
    assert table.ended(server, BADLY) is None
    assert table.first_failure() is None


def test_an_evaluator_that_fails_on_the_last_checkpoint_is_a_failure() -> None:
    table = running(TENSORFLOW, workers=0, eval_node=True)
    table.ended("chief:0", WELL)
    assert table.ended("evaluator:0", BADLY) is not None


def test_the_last_node_that_trains_may_fail() -> None:
    table = running(SPARK, workers=1)
    table.ended("chief:0", WELL)
    assert table.ended("worker:0", BADLY) is not None


def test_only_a_ps_that_returns_while_others_train_has_left_early() -> None:
    table = running(TENSORFLOW, workers=1, num_ps=1)
    table.ended("worker:0", WELL)
    assert not table.left_early("worker:0")
    table.ended("ps:0", WELL)
    assert table.left_early("ps:0")
    table.ended("chief:0", WELL)
    assert not table.left_early("ps:0")


def test_only_a_node_that_goes_without_a_word_before_the_end_has_vanished() -> None:
    table = running(SPARK)
    for name in ("worker:0", "worker:1"):
        table.ended(name, BADLY)
        table.disconnected(name)
    assert not table.has_vanished()
    failure = table.disconnected("chief:0")
    assert failure is not None
    assert table.has_vanished()
    other = running(SPARK)
    other.expect_goodbyes()
    assert other.disconnected("chief:0") is None
    assert not other.has_vanished()
