"""Executors with several cores on a real Standalone cluster: one node on each, and feed tasks on every core."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.spark_context import start_context
from testbed.standalone import StandaloneCluster, WorkerOptions
from testbed.waiting import poll_until

from tfos_core.cancellation import Cancellation
from tfos_core.errors import ConfigError
from tfos_core.events import ignore
from tfos_core.placement import place
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
EXECUTORS, CORES = 2, 2
CONF = {"spark.executor.cores": str(CORES), "spark.executor.memory": "512m", "spark.cores.max": str(EXECUTORS * CORES)}


@pytest.fixture(scope="module")
def one_host() -> Iterator[StandaloneCluster]:
    """One Worker whose cores make two executors, so that both nodes are on one host."""
    with StandaloneCluster([WorkerOptions(cores=EXECUTORS * CORES, memory="2g")]) as cluster:
        yield cluster


class Meet:
    """Gives the rows of a partition once `together` tasks run at once: the first so many partitions, then the next, and so on."""

    def __init__(self, folder: Path, together: int) -> None:
        self.folder = str(folder)
        self.together = together

    def __call__(self, index: int, rows: Iterator[int]) -> Iterator[int]:
        folder = Path(self.folder)
        (folder / f"begun-{index}").touch()
        wanted = (index // self.together + 1) * self.together
        poll_until(lambda: len(list(folder.glob("begun-*"))) >= wanted, 60, what=f"{self.together} tasks run at once")
        return rows


def forbid_profiles(context: SparkContext) -> None:
    """Make a running Spark refuse resource profiles, as it does by itself on a cluster manager that it knows nothing of."""
    manager = context._jsc.sc().resourceProfileManager()
    field = manager.getClass().getDeclaredField("isStandaloneOrLocalCluster")
    field.setAccessible(True)
    field.set(manager, False)


def known_profiles(context: SparkContext) -> int:
    """How many resource profiles Spark keeps, the default one included; it forgets none."""
    manager = context._jsc.sc().resourceProfileManager()
    field = manager.getClass().getDeclaredField("resourceProfileIdToResourceProfile")
    field.setAccessible(True)
    return int(field.get(manager).size())


def test_nodes_land_one_per_executor_and_feed_tasks_use_every_core(
    one_host: StandaloneCluster, nothing_left: None, tmp_path: Path
) -> None:
    events, meeting = Recorder(), tmp_path / "meeting"
    meeting.mkdir()
    with start_context(one_host.url, CONF) as context:
        rows = context.parallelize(range(400), EXECUTORS * CORES).mapPartitionsWithIndex(Meet(meeting, EXECUTORS * CORES))
        with started_cluster(context, nodes.consume, {"folder": str(tmp_path)}, EXECUTORS, on_event=events) as running:
            report = running.train(rows)
            running.shutdown(timeout=60)
        plan = ClusterPlan.build(EXECUTORS, num_ps=0)
        for _ in range(3):
            place(context, plan, InputMode.SPARK, timeout=30, cancellation=Cancellation(), emit=ignore)
        assert known_profiles(context) == 2, "clusters of one application share a profile"
        forbid_profiles(context)
        with pytest.raises(ConfigError, match=r"two could share one: .*TaskResourceProfiles are only supported for") as refusal:  # noqa: SIM117
            with started_cluster(context, nodes.consume, {"folder": str(tmp_path)}, EXECUTORS):
                pass
    assert f"Set spark.task.cpus={CORES} before the SparkContext starts" in str(refusal.value.hint)
    # Every partition waited for the other three: that ends only when four feed tasks run at once.
    assert report.rows == 400
    assert report.rows_per_node == {"worker:0": 200, "worker:1": 200}
    addresses = list(events.wait_for("cluster_ready").addresses.values())
    assert len({address.rpartition(":")[0] for address in addresses}) == 1, "both nodes are on one host"
    assert len(set(addresses)) == EXECUTORS, "each has a port of its own"
    noted = list(itertools.chain.from_iterable(nodes.notes(tmp_path).values()))
    assert len({entry["folder"] for entry in noted}) == EXECUTORS, "each has an executor of its own"


def test_without_stage_level_scheduling_task_cpus_put_one_node_on_each_executor(
    one_host: StandaloneCluster, nothing_left: None, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    with start_context(one_host.url, CONF | {"spark.task.cpus": str(CORES)}) as context:
        forbid_profiles(context)
        rows = context.parallelize(range(400), EXECUTORS * CORES).mapPartitionsWithIndex(Meet(meeting, EXECUTORS))
        with started_cluster(context, nodes.consume, {"folder": str(tmp_path)}, EXECUTORS) as running:
            report = running.train(rows)
            running.shutdown(timeout=60)
    # A task takes a whole executor, so two run at once, one on each; the next two wait for each other in their turn.
    assert report.rows_per_node == {"worker:0": 200, "worker:1": 200}
    noted = list(itertools.chain.from_iterable(nodes.notes(tmp_path).values()))
    assert len({entry["folder"] for entry in noted}) == EXECUTORS


@pytest.mark.slow
def test_the_example_trains_with_one_node_on_each_executor_of_two_cores(
    one_host: StandaloneCluster, run_line: RunLine, tfos_home: Path, tmp_path: Path
) -> None:
    line = ["tfos", "train", str(ROOT / "jobspecs" / "multi_core.yaml"), "--master", one_host.url, "--set", "num_epochs=6"]
    said = run_line([*line, "--json", "--set", f"args.export_dir={tmp_path / 'model'}"], fresh=True, timeout_s=150)
    registered = [event for event in said.events if event.get("event") == "node_registered"]
    assert {(event["node"], event["executor_id"]) for event in registered} == {("chief:0", 0), ("worker:0", 1)}
    assert len({event["port"] for event in registered}) == 2
    result = said.events[-1]
    assert result["rows_fed"] == 6 * 1433
    (log,) = (tfos_home / "runs").glob("*/nodes/chief-0.log")
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)", log.read_text())
    assert float(accuracy) >= 0.9
