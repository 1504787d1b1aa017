"""Kubernetes without one: Spark's real client and scheduler speak to an API server of the tests, and pods are processes here.

What is proven: what is submitted (the driver's pod, its config map, the pods of executors), that nothing secret is in it, and that
jobs run, fail, are followed and cancelled in both deploy modes. What is not: images, volumes, the cluster's network and its rights.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest
import yaml
from testbed.commandline import TfosProcess
from testbed.kubernetes import ApiServer, environment_of, properties_of
from testbed.pods import PodRunner
from testbed.waiting import poll_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
SECRET = "open sesame"
PROGRAM = """\
import os


def main_fun(args, ctx):
    feed, rows = ctx.get_data_feed(), 0
    while not feed.should_stop():
        rows += len(feed.next_batch(100))
        if args.fails:
            raise ValueError("no such digit")
    print(f"{ctx.job_name} had {rows} rows; {os.environ['GREETING']}; {len(os.environ['DB_PASSWORD'])} letters")


def waiting(args, ctx):
    feed = ctx.get_data_feed()
    feed.next_batch(1)
    print("waiting")
    while not feed.should_stop():
        feed.next_batch(1)
"""
LONGEST_S = 150


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def pods(api: ApiServer) -> Iterator[PodRunner]:
    with PodRunner(api, secrets={"database": {"password": SECRET}}) as runner:
        yield runner


def write_job(folder: Path, api: ApiServer, mode: str, **changes: Any) -> Path:
    """A job for two executors in the namespace `training`."""
    (folder / "apps").mkdir(exist_ok=True)
    (folder / "uploads").mkdir(exist_ok=True)
    (folder / "apps" / "job.py").write_text(PROGRAM)
    (folder / "token").write_text("of the service account")
    (folder / "data.csv").write_text("a\n" + "".join(f"{number}\n" for number in range(1000)))
    conf = {
        "spark.kubernetes.namespace": "training",
        "spark.kubernetes.container.image": "testbed/spark",
        "spark.kubernetes.driver.master": api.address,
        "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": str(folder / "token"),
        "spark.kubernetes.authenticate.driver.mounted.caCertFile": certifi.where(),
        "spark.kubernetes.file.upload.path": f"file://{folder}/uploads",
        "spark.kubernetes.driver.secretKeyRef.DB_PASSWORD": "database:password",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        "spark.kubernetes.executor.volumes.emptyDir.scratch.mount.path": "/scratch",
        "spark.kubernetes.node.selector.disk": "ssd",
        "spark.kubernetes.executor.podNamePrefix": "digits-exec",
        "spark.kubernetes.executor.deleteOnTermination": "false",
    }
    spec: dict[str, Any] = {
        "name": "podded",
        "entrypoint": "apps/job.py:main_fun",
        "args": {"fails": False},
        "num_executors": 2,
        "data": {"path": str(folder / "data.csv"), "format": "csv", "options": {"header": "true"}},
        "environment": {"vars": {"GREETING": "hello world"}, "secrets": ["DB_PASSWORD"]},
        "spark": {"master": api.master, "deploy_mode": mode, "conf": conf},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(spec | changes))
    return path


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def assert_no_variable_is_named_twice(pod: dict[str, Any]) -> None:
    assert [name for name, count in Counter(name for name, _ in environment_of(pod)).items() if count > 1] == []


def assert_nothing_secret(api: ApiServer, *folders: Path) -> None:
    """The value of the secret is in nothing that was sent, nor in a file that was uploaded or is kept."""
    assert SECRET not in json.dumps([request.body for request in api.requests])
    for folder in folders:
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []


def assert_all_rows_were_fed(record: Path) -> None:
    """Both nodes said how many they had, in an environment with the variable and the secret."""
    said = "".join(path.read_text() for path in (record / "nodes").glob("*.log"))
    assert len(re.findall(r"had \d+ rows; hello world; 11 letters", said)) == 2, said
    assert sum(map(int, re.findall(r"had (\d+) rows", said))) == 1000


def assert_executors_are_as_the_docs_say(api: ApiServer) -> None:
    executors = [pod for pod in api.objects("pods") if pod["metadata"]["labels"]["spark-role"] == "executor"]
    assert sorted(pod["metadata"]["name"] for pod in executors) == ["digits-exec-exec-1", "digits-exec-exec-2"]
    for pod in executors:
        container, variables = container_of(pod), dict(environment_of(pod))
        assert_no_variable_is_named_twice(pod)
        assert pod["metadata"]["namespace"] == "training"
        assert container["image"] == "testbed/spark"
        assert container["resources"]["limits"]["memory"] == "3072Mi"  # 1g of heap and 2g beside it
        assert variables["GREETING"] == "hello world"
        assert "DB_PASSWORD" not in variables
        assert variables["SPARK_EXECUTOR_POD_IP"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
        assert "/scratch" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}


def test_the_driver_of_cluster_mode_is_a_pod_that_runs_the_job(
    nothing_left: None, api: ApiServer, pods: PodRunner, run_line: RunLine, tmp_path: Path, tfos_home: Path
) -> None:
    write_job(tmp_path, api, "cluster")
    run_line("tfos train job.yaml", fresh=True, timeout_s=LONGEST_S)

    (driver,) = (pod for pod in api.objects("pods") if pod["metadata"]["labels"]["spark-role"] == "driver")
    container, variables = container_of(driver), dict(environment_of(driver))
    assert_no_variable_is_named_twice(driver)
    assert (driver["metadata"]["namespace"], driver["spec"]["serviceAccountName"]) == ("training", "spark")
    assert container["image"] == "testbed/spark"
    assert container["args"][:5] == [
        "driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner",
    ]  # fmt: skip
    assert re.fullmatch(rf"file://{tmp_path}/uploads/spark-upload-\S+/tfos_driver\.py", container["args"][5])
    assert container["args"][6:] == ["plan.json"]
    assert variables["GREETING"] == "hello world"
    assert variables["DB_PASSWORD"] == {"secretKeyRef": {"name": "database", "key": "password"}}
    assert variables["PYSPARK_PYTHON"] == variables["PYSPARK_DRIVER_PYTHON"] == "python3"

    (config,) = (found for found in api.objects("configmaps") if found["metadata"]["name"].startswith("spark-drv-"))
    properties = properties_of(config)
    uploaded = {key: [Path(url).name for url in properties[key].split(",")] for key in ("spark.files", "spark.submit.pyFiles")}
    assert uploaded == {
        "spark.files": ["plan.json", "tfos-private.json"],
        "spark.submit.pyFiles": ["tfos_core.zip", "application.zip"],
    }
    assert properties["spark.executor.instances"] == "2"
    assert properties["spark.executor.memoryOverhead"] == "2048m"
    assert properties["spark.executorEnv.GREETING"] == "hello world"
    assert properties["spark.dynamicAllocation.enabled"] == "false"
    assert_executors_are_as_the_docs_say(api)
    assert_nothing_secret(api, tmp_path / "uploads", tfos_home)

    (record,) = (tfos_home / "runs").iterdir()
    assert_all_rows_were_fed(record)
    status = json.loads((record / "status.json").read_text())
    assert (status["exit_code"], status["rows_fed"]) == (0, 1000)
    assert status["application_id"] == f"training:{driver['metadata']['name']}"


def test_in_client_mode_executors_in_pods_connect_to_the_driver_here(
    nothing_left: None,
    api: ApiServer,
    pods: PodRunner,
    run_line: RunLine,
    tmp_path: Path,
    tfos_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    write_job(tmp_path, api, "client")
    run_line("tfos train job.yaml", fresh=True, timeout_s=LONGEST_S)
    assert {pod["metadata"]["labels"]["spark-role"] for pod in api.objects("pods")} == {"executor"}
    assert_executors_are_as_the_docs_say(api)
    assert_nothing_secret(api, tfos_home)
    (record,) = (tfos_home / "runs").iterdir()
    assert_all_rows_were_fed(record)


def test_a_program_that_fails_in_a_pod_is_the_users_error(
    nothing_left: None, api: ApiServer, pods: PodRunner, run_line: RunLine, tmp_path: Path
) -> None:
    write_job(tmp_path, api, "cluster", args={"fails": True})
    outcome = run_line("tfos train job.yaml", 1, fresh=True, timeout_s=LONGEST_S)
    assert "no such digit" in outcome.stderr


def test_a_run_in_pods_is_cancelled(
    nothing_left: None,
    api: ApiServer,
    pods: PodRunner,
    run_line: RunLine,
    tfos_process: Callable[..., TfosProcess],
    tmp_path: Path,
) -> None:
    write_job(tmp_path, api, "cluster", entrypoint="apps/job.py:waiting", num_epochs=1_000_000)
    process = tfos_process("tfos train job.yaml --json")
    run_id = process.wait_for_event("submitted", LONGEST_S)["run_id"]
    process.wait_for_event("cluster_ready", LONGEST_S)
    run_line(["tfos", "cancel", run_id], fresh=True, timeout_s=LONGEST_S)
    process.wait(60, exit_code=130)


def test_a_run_whose_pod_never_starts_is_cancelled_and_its_pod_removed(
    nothing_left: None, api: ApiServer, tfos_process: Callable[..., TfosProcess], tmp_path: Path, tfos_home: Path
) -> None:
    write_job(tmp_path, api, "cluster")
    process = tfos_process("tfos train job.yaml --json")
    api.wait_for_objects("pods", 1, role="driver", deadline_s=LONGEST_S)
    (record,) = (tfos_home / "runs").iterdir()
    poll_until(lambda: json.loads((record / "status.json").read_text())["application_id"], 60, what="the id of the pod")
    process.signal()
    process.wait(60, exit_code=130)
    assert api.objects("pods") == ()


def test_a_driver_that_is_killed_for_memory_is_named_as_such(
    nothing_left: None, api: ApiServer, pods: PodRunner, tfos_process: Callable[..., TfosProcess], tmp_path: Path
) -> None:
    write_job(tmp_path, api, "cluster", entrypoint="apps/job.py:waiting", num_epochs=1_000_000)
    process = tfos_process("tfos train job.yaml --json")
    process.wait_for_event("cluster_ready", LONGEST_S)
    pods.kill_for_memory("-driver")
    result = process.wait(LONGEST_S, exit_code=7).events[-1]
    assert "killed for memory" in result["error"]


def test_the_example_of_the_docs_is_valid_and_its_command_names_its_properties(
    run_line: RunLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    spec = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "digits.py").write_text("def main_fun(args, ctx): ...\n")
    (tmp_path / "job.yaml").write_text(spec)
    command = run_line("tfos train job.yaml --dry-run").stdout
    for name, value in yaml.safe_load(spec)["spark"]["conf"].items():
        assert name in command, value
