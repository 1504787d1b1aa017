"""YARN for real: a ResourceManager, two NodeManagers and HDFS, in both deploy modes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.environments import install, make_venv, site_of
from testbed.commandline import TfosProcess
from testbed.hadoop_jars import NoHadoopError, hadoop_jars
from testbed.spark_home import SMALL_JAVA
from testbed.yarn import YarnCluster

from tfos_cli.remote.applications import applications_of
from tfos_cli.remote.place import RemoteRun
from tfos_cli.submit.venv_archive import write_archive
from tfos_cli.submit.venv_files import inspect_venv
from tfos_core.storage import publish, storage_of

if TYPE_CHECKING:
    from tests.conftest import RunLine

pytest.importorskip("hdfs_native", reason="the extra tfos[hdfs] is not installed")
pytestmark = pytest.mark.timeout(400)

JOBSPECS = Path(__file__).parents[2] / "jobspecs"
LONGEST_S = 240
APP = """
import os
import sys
import time


def rows(spark, args):
    print("the driver is process", os.getpid(), "in", os.getcwd(), flush=True)
    if args.hog == "driver":
        hog()
    numbers = spark.sparkContext.parallelize(range(args.rows), 4)
    return numbers.map(hog) if args.hog == "executor" else numbers


def hog(row=None):
    taken = [b"x" * (64 << 20) for _ in range(40)]
    time.sleep(60)
    return len(taken)


def main_fun(args, ctx):
    print("node", f"{ctx.job_name}:{ctx.task_index}", sys.executable, len(os.environ.get("TESTS_PASSWORD", "")), flush=True)
    if args.fails and ctx.task_index == 1:
        raise ValueError("this node does not like its rows")
    total, feed = 0, ctx.get_data_feed() if ctx.input_mode == "spark" else None
    while feed is not None and not feed.should_stop():
        total += sum(feed.next_batch(10))
    print("total", total, flush=True)
    time.sleep(args.sleep)
    if args.imports:
        import only_in_the_pack

        print("answer", only_in_the_pack.ANSWER, flush=True)
"""
SPEC = """
name: yarn-test
entrypoint: app.py:main_fun
args: {rows: 100, hog: none, fails: false, sleep: 0, imports: false}
num_executors: 2
master_node: null
data: {source: "app.py:rows"}
environment: {vars: {GREETING: hello}, secrets: [TESTS_PASSWORD]}
spark: {master: yarn, queue: ml, executor_memory: 512m, executor_memory_overhead: 512m, driver_memory: 512m}
"""
SECRET = "correct-horse-battery-staple"

Start = Callable[..., TfosProcess]


@pytest.fixture(scope="module")
def yarn() -> Iterator[YarnCluster]:
    """One for all tests; that of `make yarn-up` if it runs."""
    if (running := YarnCluster.running()) is not None:
        yield running
        return
    try:
        jars = hadoop_jars(yarn=True)
    except NoHadoopError as exc:
        pytest.skip(str(exc))
    with YarnCluster(jars) as cluster:
        yield cluster


@pytest.fixture
def job(yarn: YarnCluster, tmp_path: Path, tfos_process: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the job on the cluster, in client or cluster mode, with more options."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "job.yaml").write_text(SPEC)
    conf = " ".join(f"--conf '{name}={value}'" for name, value in yarn.spark_conf.items())

    started: list[TfosProcess] = []

    def start(mode: str, options: str = "", *, verb: str = "train", spec: str = "job.yaml", **environment: str) -> TfosProcess:
        line = f"tfos {verb} {spec} --json --master yarn {conf} --set spark.deploy_mode={mode} {options}"
        started.append(tfos_process(line, TESTS_PASSWORD=SECRET, SPARK_SUBMIT_OPTS=SMALL_JAVA, **environment))
        return started[-1]

    yield start
    for process in started:
        end_application(process)


def result_of(process: TfosProcess, exit_code: int) -> dict[str, Any]:
    """The last event of a run that ends like this."""
    outcome = process.wait(LONGEST_S, exit_code=exit_code)
    result = outcome.events[-1]
    assert (result["event"], result["exit_code"]) == ("result", exit_code)
    return result


@contextlib.contextmanager
def taken_port() -> Iterator[str]:
    """A port on which `tfos` can not listen: there is no live connection then."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield str(holder.getsockname()[1])


def run_folder(process: TfosProcess) -> Path:
    return Path(process.wait_for_event("submitted")["run_folder"])


def status_of(process: TfosProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_folder(process) / "status.json").read_text())
    return found


def end_application(process: TfosProcess) -> None:
    """A driver on the cluster goes on without its `tfos`, which a failed test has killed."""
    process.close()
    with contextlib.suppress(AssertionError):
        status = status_of(process)
        remote = RemoteRun.read(run_folder(process))
        if status["state"] != "finished" and status["application_id"] and remote is not None:
            applications_of(remote, {}).kill(status["application_id"])


def logs_of(process: TfosProcess) -> str:
    return "".join(path.read_text() for path in sorted((run_folder(process) / "nodes").glob("*.log")))


@pytest.mark.parametrize("deploy", ["client", "cluster"])
@pytest.mark.parametrize("mode", ["spark", "tensorflow"])
def test_a_job_runs_in_both_modes_of_both(job: Start, yarn: YarnCluster, deploy: str, mode: str, run_line: RunLine) -> None:
    more = "" if mode == "spark" else "--set input_mode=tensorflow --set data=null"
    process = job(deploy, more)
    result = result_of(process, 0)
    assert result["rows_fed"] == (100 if mode == "spark" else 0)
    status = status_of(process)
    assert re.fullmatch(r"application_\d+_\d+", status["application_id"])
    logs = logs_of(process)
    assert sum(int(total) for total in re.findall(r"total (\d+)", logs)) == (sum(range(100)) if mode == "spark" else 0)
    assert logs.count(f" {len(SECRET)}\n") == 2, "both nodes have the secret"
    shown = run_line(f"tfos status {status['run_id']}").stdout
    assert status["application_id"] in shown
    assert (f"{yarn.url}/user/" in shown) == (deploy == "cluster")
    assert "worker:0 | node worker:0" in run_line(f"tfos logs {status['run_id']}").stdout
    assert ("the driver is process" in logs) == (deploy == "cluster" and mode == "spark"), "its output has come home"
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in run_folder(process).rglob("*") if path.is_file())
    assert SECRET not in yarn.container_log(status["application_id"], "launch_container.sh")
    yarn.wait_until_gone(status_of(process)["application_id"])


def test_without_a_live_connection_the_record_tells_everything(job: Start, yarn: YarnCluster) -> None:
    with taken_port() as port:
        process = job("cluster", TFOS_SERVER_PORT=port)
        result = result_of(process, 0)
    assert result["rows_fed"] == 100
    assert "no live connection" in process.stderr
    kinds = [event["event"] for event in process.wait(1).events]
    assert [kind for kind in kinds if kind in ("driver_started", "cluster_ready", "feed_finished")] == [
        "driver_started",
        "cluster_ready",
        "feed_finished",
    ]
    record = status_of(process)["record"]
    names = sorted(entry.below for entry in storage_of(record).files_below(record))
    assert "status.json" in names
    assert "000000000001.jsonl" in names


def test_an_error_of_the_program_gives_1_with_the_node_and_its_traceback(job: Start) -> None:
    result = result_of(job("cluster", "--set input_mode=tensorflow --set data=null --set args.fails=true"), 1)
    assert result["first_failure"]["node"] == "worker:1"
    assert "ValueError: this node does not like its rows" in result["first_failure"]["traceback"]


@pytest.mark.parametrize("deploy", ["client", "cluster"])
def test_an_executor_that_is_killed_for_memory_is_named_as_such(job: Start, deploy: str) -> None:
    result = result_of(job(deploy, "--set args.hog=executor"), 7)
    assert "exceeding physical memory limits" in result["error"]
    assert "spark.executor_memory_overhead" in result["hint"]


def test_a_driver_that_is_killed_for_memory_is_named_as_such(job: Start) -> None:
    result = result_of(job("cluster", "--set args.hog=driver"), 7)
    assert "the driver's container was killed for memory" in result["error"]
    assert "spark.driver.memoryOverhead" in result["hint"]


@pytest.mark.parametrize("way", ["live", "record"])
def test_cancel_ends_a_job_on_the_cluster_cleanly(job: Start, yarn: YarnCluster, run_line: RunLine, way: str) -> None:
    with taken_port() as port:
        process = job("cluster", "--set args.sleep=600", **({"TFOS_SERVER_PORT": port} if way == "record" else {}))
        process.wait_for_event("feed_finished", LONGEST_S)
        run_id = process.wait_for_event("submitted")["run_id"]
        run_line(f"tfos cancel {run_id}", fresh=True, timeout_s=100)
        result = result_of(process, 130)
    assert result["status"] == "interrupted"
    assert ("no live connection" in process.stderr) == (way == "record")
    yarn.wait_until_gone(status_of(process)["application_id"])


def test_a_job_whose_follower_was_killed_is_seen_and_cancelled_through_its_record(
    job: Start, yarn: YarnCluster, run_line: RunLine
) -> None:
    process = job("cluster", "--set args.sleep=600")
    process.wait_for_event("feed_finished", LONGEST_S)
    run_id = process.wait_for_event("submitted")["run_id"]
    process.close()
    shown = run_line(f"tfos status {run_id}").stdout
    assert "running" in shown
    assert "rows" in shown
    run_line(f"tfos cancel {run_id}", fresh=True, timeout_s=100)
    assert "interrupted" in run_line(f"tfos status {run_id}").stdout
    yarn.wait_until_gone(status_of(process)["application_id"])


def test_a_shipped_environment_is_that_of_driver_and_nodes(job: Start, tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, "only-in-the-pack", {"only_in_the_pack.py": "ANSWER = 42\n"})
    ours = site_of(Path(sys.prefix))
    # What the driver and the nodes need of tfos itself.
    for path in (*ours.glob("numpy"), *ours.glob("numpy.libs"), *ours.glob("pyarrow"), *ours.glob("pyarrow.libs")):
        subprocess.run(["cp", "-r", path, site_of(venv)], check=True, timeout=60)
    write_archive(inspect_venv(venv), tmp_path / "env.tar.gz", level=1)
    process = job("cluster", "--set environment.pack=env.tar.gz --set args.imports=true")
    result_of(process, 0)
    logs = logs_of(process)
    assert logs.count("answer 42") == 2
    assert len(re.findall(r"node worker:\d \S*/environment/bin/python", logs)) == 2


def test_a_model_answers_rows_on_the_cluster(job: Start, yarn: YarnCluster, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MODEL, tmp_path / "model"], check=True, capture_output=True, timeout=120)
    place = f"{yarn.url}/infer-{tmp_path.name}"
    (tmp_path / "rows.json").write_text("".join(f'{{"id": {i}, "x": [{i}.5, 1.0, 0.0]}}\n' for i in range(20)))
    publish(tmp_path / "model", f"{place}/model")
    publish(tmp_path / "rows.json", f"{place}/rows/rows.json")
    (tmp_path / "infer.yaml").write_text(INFER.format(place=place))
    result = result_of(job("cluster", verb="infer", spec="infer.yaml"), 0)
    assert (result["inference"]["rows_in"], result["inference"]["rows_out"]) == (20, 20)
    found = [entry.path for entry in storage_of(place).files_below(f"{place}/out")]
    lines = [line for path in found for line in storage_of(place).open_input(path).read().splitlines()]
    answers = {row["id"]: row["y"] for row in map(json.loads, lines)}
    assert answers == {i: [i + 0.5 + 2.0 + 1.0] for i in range(20)}


MODEL = """
import sys
import tensorflow as tf


class Module(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": x @ [[1.0], [2.0], [3.0]] + 1.0}


module = Module()
tf.saved_model.save(module, sys.argv[1], signatures=module.__call__)
"""
INFER = """
name: yarn-infer
num_executors: 1
data: {{path: "{place}/rows", format: json}}
infer: {{export_dir: "{place}/model", input_mapping: {{x: x}}, keep: [id], output: {{path: "{place}/out", format: json}}}}
spark: {{executor_memory: 512m, driver_memory: 512m}}
"""


@pytest.mark.timeout(700)
def test_the_digits_are_trained_and_told_on_the_cluster(job: Start, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model, out = f"{yarn.url}/digits", f"{yarn.url}/models/digits", f"{yarn.url}/predictions"
    publish(JOBSPECS / "data" / "digits", data)
    memory = "--set spark.executor_memory=512m --set spark.driver_memory=512m --set spark.executor_memory_overhead=2g"
    train = f"--set num_epochs=3 --set data.path={data}/train.csv --set args.export_dir={model} --set args.test_file={TEST_HERE}"
    result = result_of(job("cluster", f"{memory} {train}", spec=str(JOBSPECS / "digits_spark.yaml")), 0)
    assert result["exports"] == [model]
    infer = f"--set data.path={data}/test.csv --set infer.export_dir={model} --set infer.output.path={out}"
    result = result_of(job("cluster", f"{memory} {infer}", verb="infer", spec=str(JOBSPECS / "digits_infer.yaml")), 0)
    assert (result["inference"]["rows_in"], result["inference"]["rows_out"]) == (364, 364)
    assert any(entry.below.endswith(".parquet") for entry in storage_of(out).files_below(out))


#: The chief judges its model by a file that it reads itself with TensorFlow, which knows nothing of HDFS.
TEST_HERE = JOBSPECS / "data" / "digits" / "test.csv"
