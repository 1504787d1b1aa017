from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core import events, launch
from tfos_core.errors import ConfigError, ReservationTimeoutError
from tfos_core.launch import NodeJob, await_registration, driver_host, make_payload
from tfos_core.node_table import NodeTable
from tfos_core.placement import Placement, check_context
from tfos_core.topology import ClusterPlan, InputMode

WAIT_S = 20.0


def program(args: Any, ctx: Any) -> None:
    """Does nothing."""


def test_a_function_travels_with_its_arguments_and_what_it_captures() -> None:
    captured = {"a": 1}
    function, args = pickle.loads(make_payload(lambda args, ctx: (captured, args), ["x"]))
    assert function(args, None) == ({"a": 1}, ["x"])


def test_a_function_that_can_not_travel_is_refused_with_its_name() -> None:
    lock = threading.Lock()

    def trains_with(args: Any, ctx: Any) -> None:
        lock.acquire()

    with pytest.raises(ConfigError, match=r"trains_with can not be sent to the executors: TypeError: .*lock"):
        make_payload(trains_with, None)
    with pytest.raises(ConfigError, match="program can not be sent"):
        make_payload(program, lock)


@pytest.fixture
def server() -> Any:
    return SimpleNamespace(address=("h", 1))


def test_waiting_for_nodes_ends_with_the_last_one(server: Any) -> None:
    table = NodeTable(ClusterPlan.build(2), InputMode.SPARK)
    table.registered("worker:0", "h")
    waiting = threading.Thread(
        target=await_registration, args=(table, server, events.ignore, WAIT_S), kwargs={"is_over": lambda: False}
    )
    waiting.start()
    table.registered("worker:1", "h")
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_waiting_for_nodes_ends_when_it_is_over(server: Any) -> None:
    table = NodeTable(ClusterPlan.build(1), InputMode.SPARK)
    await_registration(table, server, events.ignore, WAIT_S, is_over=lambda: True)


def test_nodes_that_do_not_come_are_told_and_then_named(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_TELL_S", 0.01)
    table = NodeTable(ClusterPlan.build(3), InputMode.SPARK)
    table.registered("worker:1", "h")
    told: list[events.Event] = []
    with pytest.raises(ReservationTimeoutError, match=r"2 of 3 nodes did not register within 0.1 s: worker:0, worker:2") as caught:
        await_registration(table, server, told.append, 0.1, is_over=lambda: False)
    assert caught.value.missing == ("worker:0", "worker:2")
    assert "h:1" in str(caught.value.hint)
    assert isinstance(told[0], events.ReservationWaiting) and told[0].missing == ("worker:0", "worker:2")


class Spark:
    """A SparkContext whose jobs do what they are told; a cancelled one fails."""

    def __init__(self, collect: Callable[[Spark], Any]) -> None:
        self.collect = collect
        self.cancelled = threading.Event()
        self.tags: list[str] = []
        self.destroyed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name in ("parallelize", "barrier", "mapPartitions"):
            return lambda *args: SimpleNamespace(
                barrier=self.barrier, mapPartitions=self.mapPartitions, collect=lambda: self.collect(self)
            )
        raise AttributeError(name)

    def broadcast(self, value: bytes) -> Any:
        return SimpleNamespace(value=value, destroy=self.destroyed.set)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.append(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        assert self.tags == [tag]
        self.cancelled.set()


def run_job(spark: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[NodeJob, list[str | None], threading.Event]:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "InheritableThread", threading.Thread)
    ends: list[str | None] = []
    ended = threading.Event()

    def on_end(error: str | None) -> None:
        ends.append(error)
        ended.set()

    config: Any = SimpleNamespace(generation="g")
    placement = Placement(profile=None, cores=1, executors=())
    job = NodeJob(spark, ClusterPlan.build(1), placement, config, b"payload", on_end=on_end)
    job.start()
    return job, ends, ended


def fail_when_cancelled(spark: Spark) -> None:
    assert spark.cancelled.wait(WAIT_S)
    raise RuntimeError("cancelled")


def fail(spark: Spark) -> None:
    raise RuntimeError("NodeFailedError: worker:0 failed")


def test_the_end_of_the_node_job_is_told_once_and_its_broadcast_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    for collect, expected in ((lambda spark: [], None), (fail, "NodeFailedError: worker:0 failed")):
        spark = Spark(collect)
        job, ends, ended = run_job(spark, monkeypatch)
        assert ended.wait(WAIT_S)
        assert spark.destroyed.wait(WAIT_S)
        job.stop(WAIT_S)
        assert ends == [expected]
        assert not spark.cancelled.is_set()


def test_a_node_job_that_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    job, ends, _ = run_job(Spark(fail_when_cancelled), monkeypatch)
    job.stop(WAIT_S)
    assert ends == ["cancelled"]
    job.stop(WAIT_S)


class Context:
    """A SparkContext that only has settings."""

    def __init__(self, master: str, settings: dict[str, str], jsc: object | None) -> None:
        self.master = master
        self._settings = settings
        self._jsc = jsc

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self._settings


def context(master: str = "spark://h:1", *, stopped: bool = False, **settings: str) -> Any:
    return Context(master, {name.replace("_", "."): value for name, value in settings.items()}, None if stopped else object())


@pytest.mark.parametrize(
    ("sc", "text"),
    [
        (context(stopped=True), "the SparkContext was stopped"),
        (context("local[2]"), r"master is 'local\[2\]': all Spark tasks share one process"),
        (context(spark_dynamicAllocation_enabled=" True"), "spark.dynamicAllocation.enabled is true"),
        (object(), "a object is not a SparkContext"),
    ],
)
def test_contexts_that_can_not_work_are_refused(sc: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_context(sc, InputMode.SPARK)


def test_settings_that_may_harm_are_told() -> None:
    assert len(check_context(context(spark_speculation="TRUE"), InputMode.SPARK)) == 2
    assert check_context(context("local-cluster[2,1,1024]", spark_locality_wait="0s"), InputMode.SPARK) == []
    assert check_context(context(), InputMode.TENSORFLOW) == []


@pytest.mark.parametrize(
    ("sc", "is_told"),
    [
        (context(spark_network_crypto_enabled="true", spark_driver_host="10.0.0.1"), True),
        (context("yarn", spark_ssl_enabled=" TRUE "), True),
        (context(spark_network_crypto_enabled="true", spark_driver_host="127.0.0.1"), False),
        (context("local-cluster[2,1,1024]", spark_network_crypto_enabled="true"), False),
        (context("yarn", spark_authenticate="true"), False),
    ],
)
def test_a_context_that_encrypts_is_told_what_stays_clear_text(sc: Any, is_told: bool) -> None:
    told = check_context(sc, InputMode.TENSORFLOW)
    assert [text for text in told if "authenticated clear text" in text] == told
    assert bool(told) is is_told


@pytest.mark.parametrize(("host", "expected"), [(None, None), ("10.0.0.1", "10.0.0.1"), ("[::1]", "::1")])
def test_the_drivers_address_is_the_one_that_spark_advertises(host: str | None, expected: str | None) -> None:
    assert driver_host(context(**({"spark_driver_host": host} if host else {}))) == expected
