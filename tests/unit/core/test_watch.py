"""Which failure is told. The waits are shortened, never slept through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

import pytest

from tfos_core import watch
from tfos_core.errors import NodeLostError, TfosError
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.outcome import Outcome
from tfos_core.topology import ClusterPlan, InputMode
from tfos_core.watch import FailureWatch

WAIT_S = 20.0
CAUSE = Outcome(ok=False, error="ValueError: the cause", exit_code=1)
ECHO = Outcome(ok=False, error="UnavailableError: the echo", exit_code=1, collateral=True)
JOB = NodeLostError("Spark could not run the node tasks")


class Bench:
    """A watch over two workers; `collateral_s` and `job_s` are its waits."""

    def __init__(self) -> None:
        self.table = NodeTable(ClusterPlan.build(2), InputMode.SPARK)
        self.told: Queue[NodeFailure | TfosError] = Queue()
        self.watch = FailureWatch(self.table, self.told.put)

    def fail(self, node: str, outcome: Outcome) -> None:
        failure = self.table.ended(node, outcome)
        assert failure is not None
        self.watch.noticed(failure)

    def next(self) -> NodeFailure | TfosError:
        return self.told.get(timeout=WAIT_S)

    def node(self) -> str:
        told = self.next()
        assert isinstance(told, NodeFailure)
        return told.node


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float, float], Bench]]:
    made: list[Bench] = []

    def build(collateral_s: float, job_s: float) -> Bench:
        monkeypatch.setattr(watch, "_COLLATERAL_WAIT_S", collateral_s)
        monkeypatch.setattr(watch, "_JOB_WAIT_S", job_s)
        made.append(Bench())
        return made[-1]

    yield build
    for bench in made:
        bench.watch.close()


def test_a_cause_is_told_at_once_and_once(make: Callable[[float, float], Bench]) -> None:
    bench = make(60, 60)
    bench.fail("worker:0", CAUSE)
    assert bench.node() == "worker:0"
    bench.fail("worker:1", CAUSE)
    bench.watch.job_failed(JOB)
    with pytest.raises(Empty):
        bench.told.get_nowait()


def test_an_echo_waits_for_its_cause(make: Callable[[float, float], Bench]) -> None:
    bench = make(60, 60)
    bench.fail("worker:1", ECHO)
    bench.watch.job_failed(JOB)
    bench.fail("worker:0", CAUSE)
    assert bench.node() == "worker:0"


def test_an_echo_without_a_cause_is_told_in_the_end(make: Callable[[float, float], Bench]) -> None:
    bench = make(0.01, 60)
    bench.fail("worker:1", ECHO)
    assert bench.node() == "worker:1"


def test_the_word_of_spark_counts_when_no_node_has_a_better_one(make: Callable[[float, float], Bench]) -> None:
    bench = make(60, 0.01)
    bench.watch.job_failed(JOB)
    assert bench.next() is JOB


def test_a_closed_watch_tells_nothing(make: Callable[[float, float], Bench]) -> None:
    bench = make(0.01, 0.01)
    bench.watch.close()
    before = threading.active_count()
    bench.fail("worker:0", CAUSE)
    bench.watch.job_failed(JOB)
    assert threading.active_count() == before
    assert bench.told.empty()


def test_settling_waits_until_the_failure_was_told(make: Callable[[float, float], Bench]) -> None:
    bench = make(60, 60)
    bench.fail("worker:0", CAUSE)
    bench.watch.settle(WAIT_S)
    assert not bench.told.empty()


def test_settling_ends_also_when_who_was_told_fails(make: Callable[[float, float], Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(60, 60)
    errors: Queue[str] = Queue()
    monkeypatch.setattr(threading, "excepthook", lambda args: errors.put(str(args.exc_value)))

    def fail(cause: NodeFailure | TfosError) -> None:
        raise RuntimeError("a bug")

    bench.watch = FailureWatch(bench.table, fail)
    bench.fail("worker:0", CAUSE)
    assert errors.get(timeout=WAIT_S) == "a bug"
    assert bench.watch._told.wait(WAIT_S)


def test_settling_without_any_news_is_short(make: Callable[[float, float], Bench]) -> None:
    make(0.01, 60).watch.settle(WAIT_S)
