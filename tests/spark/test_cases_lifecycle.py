"""The end of clusters, and platforms, on real executors."""

from __future__ import annotations

import os
import platform
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.waiting import poll_until

from tfos_core.errors import ClusterStateError, ConfigError, NodeFailedError, NodeTimeoutError

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_all_nodes_export_to_one_path_and_a_reader_sees_the_chiefs_whole_model(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    target = tmp_path / "models" / "digits"
    args = {"folder": str(tmp_path), "export_dir": str(target)}
    with started_cluster(sc, nodes.export_model, args, spark_mode=False) as running:
        running.shutdown(timeout=120)
        assert running.report().exports == [str(target)]
    assert {node: entry[0]["path"] for node, entry in nodes.notes(tmp_path).items()} == {"worker:0": str(target), "worker:1": None}
    assert (target / "saved_model.pb").is_file()
    assert (target / "variables" / "variables.index").is_file()
    # Nothing temporary is left beside it.
    assert [path.name for path in target.parent.iterdir()] == ["digits"]


def test_shutdown_works_off_the_main_thread_and_leaves_signal_handlers_alone(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM)}
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}) as running, ThreadPoolExecutor(1) as pool:
        pool.submit(running.shutdown).result(60)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_shutdown_after_the_last_node_has_ended_takes_less_than_a_second(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    seconds = []
    for _ in range(3):
        events = Recorder()
        with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}, on_event=events) as running:
            running.shutdown()
        seconds.append(events.wait_for("shutdown_finished").seconds)
    assert min(seconds) < 1, seconds


def test_shutdown_may_be_called_again_and_nothing_after_it(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    with started_cluster(sc, nodes.consume, {"folder": str(tmp_path)}) as running:
        running.shutdown()
        running.shutdown()
        with pytest.raises(ClusterStateError, match=r"train\(\) came after shutdown\(\)"):
            running.train(sc.parallelize(range(4), 2))


def test_shutdown_stops_nodes_that_do_not_end_in_time_and_names_them(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    with (
        pytest.raises(NodeTimeoutError, match=r"worker:0 \(.*\) did not end within 1 s .* \(nor did worker:1\)"),
        started_cluster(sc, nodes.stay, {"folder": str(tmp_path)}, spark_mode=False) as running,
    ):
        running.shutdown(timeout=1)


def test_serving_nodes_are_stopped_when_the_others_are_done(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    events = Recorder()
    args = {"folder": str(tmp_path)}
    with started_cluster(sc, nodes.serve_or_train, args, spark_mode=False, num_ps=1, on_event=events) as running:
        # They would stay for 300 s.
        running.shutdown(timeout=90)
    assert {event.node for event in events.all("node_finished")} >= {"worker:0"}
    assert events.all("node_failed") == []
    assert set(nodes.notes(tmp_path)) == {"ps:0", "worker:0"}


def test_a_serving_node_that_dies_early_is_a_failure(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    with (
        pytest.raises(NodeFailedError, match=r"ps:0 .*signal 15"),
        started_cluster(sc, nodes.stay, {"folder": str(tmp_path)}, spark_mode=False, num_ps=1) as running,
    ):
        found = poll_until(lambda: nodes.notes(tmp_path).get("ps:0", []), 60, what="the ps runs")
        os.kill(found[0]["pid"], signal.SIGTERM)
        running.shutdown(timeout=30)


def test_local_masters_are_refused_with_the_line_to_use(monkeypatch: pytest.MonkeyPatch, sc: SparkContext) -> None:
    monkeypatch.setattr(sc, "master", "local[2]")
    with (
        pytest.raises(ConfigError, match=r"master is 'local\[2\]': all Spark tasks share one process") as refusal,
        started_cluster(sc, nodes.consume, {}),
    ):
        pass
    assert "local-cluster[2,1,1024]" in str(refusal.value.hint)


def test_windows_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, sc: SparkContext) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    with pytest.raises(ConfigError, match="does not run on Windows: "), started_cluster(sc, nodes.consume, {}):
        pass


def test_settings_that_move_executors_about_are_refused_with_the_line_to_set(
    monkeypatch: pytest.MonkeyPatch, sc: SparkContext
) -> None:
    from pyspark import SparkConf

    conf = SparkConf().setAll(sc.getConf().getAll()).set("spark.dynamicAllocation.enabled", "true")
    monkeypatch.setattr(sc, "getConf", lambda: conf)
    with (
        pytest.raises(ConfigError, match=r"spark.dynamicAllocation.enabled is true") as refusal,
        started_cluster(sc, nodes.consume, {}),
    ):
        pass
    assert "spark.dynamicAllocation.enabled=false" in str(refusal.value.hint)
