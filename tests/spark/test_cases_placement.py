"""Executors that Spark does not grant, on a real Master with two Workers of one core and 1 GB."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.processes import kill_all
from testbed.spark_context import start_context
from testbed.standalone import StandaloneCluster

from tfos_core.errors import NodeLostError, ReservationTimeoutError

if TYPE_CHECKING:
    pass

WHOLE = {"spark.executor.memory": "512m", "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s"}
SMALL = WHOLE | {"spark.executor.cores": "1"}


@pytest.fixture(scope="module")
def workers() -> Iterator[StandaloneCluster]:
    """Two Workers for the tests of this module."""
    with StandaloneCluster(2) as cluster:
        yield cluster


def refusal_of(master: StandaloneCluster, conf: Mapping[str, str], timeout: float) -> tuple[ReservationTimeoutError, float]:
    """How a cluster of two nodes is refused, and after how many seconds."""
    with start_context(master.url, conf) as context:
        started = time.monotonic()
        with (
            pytest.raises(ReservationTimeoutError) as refusal,
            started_cluster(context, nodes.consume, {}, reservation_timeout=timeout),
        ):
            pass
        return refusal.value, time.monotonic() - started


def test_a_limit_of_cores_that_is_too_small_is_refused_before_waiting(workers: StandaloneCluster, nothing_left: None) -> None:
    refusal, seconds = refusal_of(workers, SMALL | {"spark.cores.max": "1"}, timeout=60)
    assert seconds < 5
    assert "2 nodes need 2 executors, 1 available" in str(refusal)
    assert "spark.cores.max=1" in str(refusal)
    assert refusal.missing == ("worker:1",)


def test_memory_that_no_worker_has_is_reported_with_the_numbers(workers: StandaloneCluster, nothing_left: None) -> None:
    refusal, seconds = refusal_of(workers, SMALL | {"spark.executor.memory": "3g"}, timeout=3)
    assert seconds < 10
    assert "2 nodes need 2 executors, 0 available" in str(refusal)
    assert "3g memory" in str(refusal)
    assert refusal.missing == ("worker:0", "worker:1")


def test_tasks_that_need_more_cores_than_an_executor_has_are_reported(workers: StandaloneCluster, nothing_left: None) -> None:
    # With spark.executor.cores left out, Spark itself does not notice.
    # The executors say how many they have, so that is told as soon as they are there.
    refusal, seconds = refusal_of(workers, WHOLE | {"spark.task.cpus": "2"}, timeout=60)
    assert seconds < 25
    assert "spark.task.cpus=2" in str(refusal)
    assert "a task needs 2 cores, and no executor has more than 1" in str(refusal)


def test_two_nodes_train_on_workers_of_their_own(workers: StandaloneCluster, nothing_left: None, tmp_path: Path) -> None:
    with (
        start_context(workers.url, SMALL) as context,
        started_cluster(context, nodes.consume, {"folder": str(tmp_path)}) as running,
    ):
        report = running.train(context.parallelize(range(400), 4))
        running.shutdown()
    assert report.rows == 400
    assert set(nodes.notes(tmp_path)) == {"worker:0", "worker:1"}


def test_an_executor_that_is_killed_is_reported_as_lost(workers: StandaloneCluster, nothing_left: None, tmp_path: Path) -> None:
    events = Recorder()
    with start_context(workers.url, SMALL) as context:
        with (
            pytest.raises(NodeLostError, match=r"worker:[01] \(executor .*(executor|JVM)") as failure,
            started_cluster(context, nodes.stay, {"folder": str(tmp_path)}, on_event=events) as running,
        ):
            kill_all(workers.executors()[:1])
            killed = time.monotonic()
            running.shutdown(timeout=30)
        assert time.monotonic() - killed < 5
        assert failure.value.node in {"worker:0", "worker:1"}
        assert events.wait_for("node_failed", 5).lost
