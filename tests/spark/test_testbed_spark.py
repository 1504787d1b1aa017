"""The testbed's Spark: clusters come up, run a job, and go without a trace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.processes import kill_all, read_process, wait_until_gone
from testbed.session import Session
from testbed.spark_home import find_spark
from testbed.standalone import StandaloneCluster, gpu_worker
from testbed.waiting import poll_until

if TYPE_CHECKING:
    from pyspark import SparkContext

JOB = """
import os, sys
from pyspark import BarrierTaskContext, SparkConf, SparkContext

sc = SparkContext(conf=SparkConf())
def where(_):
    context = BarrierTaskContext.get()
    context.barrier()
    gpus = context.resources().get("gpu")
    return [(os.environ["SPARK_LOCAL_DIRS"], gpus.addresses if gpus else [])]
found = sc.parallelize(range(2), 2).barrier().mapPartitions(where).collect()
print(len({folder for folder, _ in found}), sorted(gpu for _, gpus in found for gpu in gpus))
sc.stop()
"""


def submit(cluster: StandaloneCluster, script: Path, *options: str) -> str:
    environment: Mapping[str, str] = cluster.environment
    command = [str(find_spark() / "bin" / "spark-submit"), "--master", cluster.url, "--executor-memory", "512m"]
    # Without these a barrier job that comes before its executors waits 15 s for a second look.
    command += ["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
    command += ["--conf", "spark.scheduler.barrier.maxConcurrentTasksCheck.interval=1s"]
    done = subprocess.run([*command, *options, str(script)], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_cluster_runs_a_job_on_two_executors_and_leaves_nothing(nothing_left: None, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    with StandaloneCluster(2) as cluster:
        folder = cluster.folder
        assert submit(cluster, script) == "2 []"
        assert cluster.web_url.startswith("http://")
    assert not folder.exists()


@pytest.mark.slow
def test_workers_offer_gpus_that_a_script_names(nothing_left: None, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    with StandaloneCluster([gpu_worker(tmp_path, ["7"]), gpu_worker(tmp_path, ["3"])]) as cluster:
        options = ["--conf", "spark.executor.resource.gpu.amount=1", "--conf", "spark.task.resource.gpu.amount=1"]
        assert submit(cluster, script, *options) == "2 ['3', '7']"


@pytest.mark.slow
def test_executors_and_workers_can_be_killed_by_themselves(nothing_left: None, tmp_path: Path) -> None:
    from testbed.spark_context import start_context

    with StandaloneCluster(2) as cluster, start_context(cluster.url, {"spark.executor.memory": "512m"}) as context:
        assert context.parallelize(range(10), 2).sum() == 45
        first = cluster.wait_for_executors(2)[0]
        kill_all([first])
        # Standalone starts another one.
        replaced = poll_until(lambda: {process.pid for process in cluster.executors()} - {first.pid}, 30, what="another executor")
        assert replaced
        cluster.wait_for_executors(2)
        survivors = cluster.workers[1].executors()
        cluster.kill_worker(0)
        assert read_process(cluster.workers[0].pid) is None
        assert not wait_until_gone(cluster.workers[0].executors(), 5)
        assert all(read_process(process.pid) for process in survivors)


def test_a_shared_context_is_not_a_leftover(sc: SparkContext, nothing_left: None, testbed_session: Session) -> None:
    assert sc.parallelize(range(10), 2).map(abs).sum() == 45
    assert any(process.runs("pyspark.daemon") for process in testbed_session.processes())


def test_a_process_that_a_task_daemonises_is_a_leftover(sc: SparkContext, testbed_session: Session) -> None:
    from testbed.leaks import find_leftovers, take_snapshot

    before = take_snapshot(testbed_session.mark)
    (pid,) = sc.parallelize([0], 1).map(_daemonise).collect()
    left = find_leftovers(before).processes
    assert [process.pid for process in left] == [pid]
    with pytest.raises(AssertionError, match=str(pid)):
        from testbed.leaks import assert_nothing_left

        assert_nothing_left(before, deadline_s=0.1)
    kill_all(left)


def _daemonise(_: int) -> int:
    code = "import os, time; os.setsid(); time.sleep(60)"
    intermediate = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.DEVNULL).pid)"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", intermediate, code], stdout=subprocess.PIPE, text=True, env=os.environ)
    return int(done.stdout)
