"""What goes wrong when a cluster starts, on real executors."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster

from tfos_core import cluster
from tfos_core.errors import ConfigError, DuplicateNodeError, NodeFailedError, ReservationError, ReservationTimeoutError
from tfos_core.reservation import Client, NodeRecord
from tfos_core.topology import Role

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_a_node_that_raises_at_once_is_named_with_its_host_and_traceback(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    events = Recorder()
    started = time.monotonic()
    with (
        pytest.raises(NodeFailedError, match=r"worker:1 .*no column 'label' on worker:1") as failure,
        started_cluster(sc, nodes.fail, {"folder": str(tmp_path), "failing": [1]}, on_event=events) as running,
    ):
        running.train(sc.parallelize(range(400), 4))
        running.shutdown()
    assert time.monotonic() - started < 20
    assert (failure.value.node, failure.value.host, failure.value.exit_code) == ("worker:1", "127.0.0.1", 1)
    assert "in fail\n" in failure.value.remote_traceback
    assert "ValueError: no column 'label' on worker:1" in failure.value.remote_traceback
    first = [event for event in events.all("node_failed") if event.first]
    assert [(event.node, event.host) for event in first] == [("worker:1", "127.0.0.1")]
    # Spark's own retry would have started the function once more.
    assert len(nodes.notes(tmp_path)["worker:1"]) == 1


def test_the_cause_is_told_and_not_its_consequence_on_another_node(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    with (
        pytest.raises(NodeFailedError, match=r"worker:1 .*no column 'label'"),
        started_cluster(sc, nodes.fail_like_a_peer, {"folder": str(tmp_path)}) as running,
    ):
        running.train(sc.parallelize(range(400), 4))
        running.shutdown()


def test_a_cluster_starts_after_another_one_has_failed(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    with (
        pytest.raises(NodeFailedError),
        started_cluster(sc, nodes.fail, {"folder": str(tmp_path), "failing": [0, 1]}) as running,
    ):
        running.shutdown()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}) as running:
        assert running.train(sc.parallelize(range(400), 4)).rows == 400
        running.shutdown()


def test_more_nodes_than_executors_are_refused_at_once_with_the_roles_left_over(sc: SparkContext, nothing_left: None) -> None:
    events = Recorder()
    started = time.monotonic()
    with (
        pytest.raises(ReservationTimeoutError, match=r"3 nodes need 3 executors, 2 available.*no executor for worker:2") as refusal,
        started_cluster(sc, nodes.consume, {}, 3, on_event=events),
    ):
        pass
    assert time.monotonic() - started < 5
    assert refusal.value.missing == ("worker:2",)
    assert "reservation_server" not in events.kinds


def test_roles_without_executor_are_named_by_their_role(sc: SparkContext) -> None:
    with (
        pytest.raises(ReservationTimeoutError, match=r"no executor for worker:0, worker:1"),
        started_cluster(sc, nodes.consume, {}, 4, num_ps=1, master_node="chief"),
    ):
        pass


def test_a_function_that_can_not_be_pickled_is_refused_before_anything_starts(sc: SparkContext, nothing_left: None) -> None:
    lock = threading.Lock()
    events = Recorder()

    def uses_a_lock(args: object, ctx: object) -> None:
        with lock:
            pass

    with (
        pytest.raises(ConfigError, match=r"uses_a_lock can not be sent to the executors: .*lock"),
        started_cluster(sc, uses_a_lock, {}, on_event=events),
    ):
        pass
    assert events.kinds == []


def test_a_function_that_uses_the_spark_context_is_refused_before_anything_starts(sc: SparkContext) -> None:
    def uses_spark(args: object, ctx: object) -> None:
        sc.parallelize([1])

    with pytest.raises(ConfigError, match="uses_spark can not be sent"), started_cluster(sc, uses_spark, {}):
        pass


def test_the_address_that_spark_uses_for_the_driver_is_advertised(sc: SparkContext, tmp_path: Path) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
        running.shutdown()
    assert events.wait_for("reservation_server").host == sc.getConf().get("spark.driver.host") == "127.0.0.1"
    assert {event.host for event in events.all("node_registered")} == {"127.0.0.1"}


def test_the_address_can_be_chosen_and_a_port_range_skips_a_port_that_is_taken(
    sc: SparkContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = Recorder()
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TFOS_SERVER_HOST", "127.0.0.2")
        monkeypatch.setenv("TFOS_SERVER_PORT", f"{port}-{port + 20}")
        with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
            running.shutdown()
    server = events.wait_for("reservation_server")
    assert server.host == "127.0.0.2"
    assert port < server.port <= port + 20


def test_a_port_that_is_taken_is_named_with_the_process_that_holds_it(sc: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TFOS_SERVER_PORT", str(port))
        with (
            pytest.raises(ReservationError, match=rf"port {port} is held by .*{os.getpid()}"),
            started_cluster(sc, nodes.consume, {}),
        ):
            pass


def test_a_second_node_of_the_same_name_is_refused_with_both_identities(sc: SparkContext, tmp_path: Path) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
        server = events.wait_for("reservation_server")
        real = next(event for event in events.all("node_registered") if event.node == "worker:0")
        # This process holds the server, so its clients know the secret.
        client = Client((server.host, server.port))
        try:
            record = NodeRecord(executor_id=0, role=Role.WORKER, index=0, host="10.1.2.3", port=4444, pid=99999)
            with pytest.raises(DuplicateNodeError, match=r"10\.1\.2\.3") as refusal:
                client.register(record)
            assert str(real.pid) in str(refusal.value) and "99999" in str(refusal.value)
        finally:
            client.close()
        assert running.train(sc.parallelize(range(400), 4)).rows == 400
        running.shutdown()


def test_a_stranger_at_the_reservation_port_does_no_harm(sc: SparkContext, tmp_path: Path) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
        server = events.wait_for("reservation_server")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, b"\x00\x00\x00\x02{}" * 100, b""):
            with socket.create_connection((server.host, server.port), timeout=10) as stranger:
                stranger.sendall(garbage)
                stranger.shutdown(socket.SHUT_WR)
                stranger.settimeout(10)
                while stranger.recv(65536):
                    pass
        with pytest.raises(ReservationError):
            Client((server.host, server.port), secret=b"wrong" * 8, timeout=5).close()
        assert running.train(sc.parallelize(range(400), 4)).rows == 400
        running.shutdown()


def test_arguments_that_can_not_work_are_refused_before_spark_is_asked(sc: SparkContext) -> None:
    with pytest.raises(ConfigError, match=r"num_executors is 0"):
        cluster.run(sc, nodes.consume, {}, 0)
    with pytest.raises(ConfigError, match=r"2 nodes leave no worker beside 2 ps"):
        cluster.run(sc, nodes.consume, {}, 2, 2)
    with pytest.raises(ConfigError, match=r"eval_node needs InputMode.TENSORFLOW"):
        cluster.run(sc, nodes.consume, {}, 2, input_mode=cluster.InputMode.SPARK, eval_node=True)
