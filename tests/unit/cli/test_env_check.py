"""`tfos env-check`: what facts mean, who is the odd one out, and how it is told."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.submissions import resolve

from tfos_cli.envcheck.check import Check, Status, merged, worst
from tfos_cli.envcheck.cluster import cluster_report
from tfos_cli.envcheck.differences import differences, labels_of
from tfos_cli.envcheck.local import submission_checks
from tfos_cli.envcheck.result import CheckResult, show
from tfos_cli.envcheck.rules import Needs, machine_checks, pair_checks
from tfos_cli.envcheck.submit import probe_job
from tfos_cli.envcheck.versions import version_key
from tfos_cli.ui.console import Console

if TYPE_CHECKING:
    from tests.conftest import RunLine

FACTS: dict[str, Any] = {
    "host": "host-a",
    "platform": "linux",
    "system": "Linux-6.1-x86_64",
    "machine": "x86_64",
    "python": "3.11.7",
    "executable": "/usr/bin/python3",
    "tensorflow": {"distribution": "tensorflow", "version": "2.21.0"},
    "packages": {
        "tf_keras": "2.21.0",
        "keras": "3.15.1",
        "numpy": "2.4.6",
        "pandas": "2.3.3",
        "pyarrow": "26.0.1",
        "protobuf": "7.0",
    },
    "cpus": 4,
    "shm_free": 1 << 30,
    "folder": {"path": "/work", "free": 10 << 30, "problem": ""},
    "temporary": {"path": "/tmp", "free": 10 << 30, "problem": ""},
    "limits": {"open_files": 65536, "processes": -1, "address_space": -1},
    "variables": {},
    "libhdfs": "",
    "gpus": {"gpus": [], "problem": "there is no nvidia-smi on PATH"},
    "gpu_driver": "",
    "time": 0.0,
}
GPU = {"id": "0", "index": 0, "uuid": "GPU-0", "name": "H200", "is_part": False, "in_use": ""}


def facts(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(FACTS) | changes


def executor(index: int, **changes: Any) -> dict[str, Any]:
    fine = {"error": "", "version": "", "seconds": 1.0}
    own = {
        "index": index,
        "host": f"host-{'abcdef'[index]}",
        "executor": f"executor {index}",
        "address": f"10.0.0.{index}",
        "driver": {"error": "", "skew_s": 0.0, "within_s": 0.001},
        "peers": {},
        "granted_gpus": [],
        "imports": {"tensorflow": fine, "app:main_fun": fine},
        "reads": {"/data": ""},
        "writes": {"/models": ""},
    }
    return facts(**(own | changes))


def probed(*executors: dict[str, Any], **changes: Any) -> dict[str, Any]:
    own = {
        "address": "10.0.0.9",
        "port": 4000,
        "spark": "4.3.0",
        "master": "spark://x",
        "imports": {},
        "reads": {},
        "writes": {},
        "through_spark": {},
        "settings": {},
    }
    result = {"driver": facts(host="driver", **own), "executors": list(executors), "expected": len(executors)}
    return result | {"problem": "", "hint": "", "settings": []} | changes


def found(checks: Any, status: Status = Status.FAILURE) -> dict[str, str]:
    return {check.id: check.found for check in checks if check.status is status}


def test_a_machine_in_order_has_nothing_but_ok() -> None:
    assert worst(machine_checks(FACTS, Needs(legacy_keras=True))) is Status.OK


@pytest.mark.parametrize(
    ("changes", "status", "check", "words"),
    [
        ({"platform": "win32"}, Status.FAILURE, "platform", "Windows"),
        ({"platform": "darwin"}, Status.WARNING, "platform", "not tested"),
        ({"python": "3.10.2"}, Status.FAILURE, "python", "too old"),
        ({"python": "3.14.0"}, Status.WARNING, "python", "newer"),
        ({"tensorflow": None}, Status.FAILURE, "tensorflow", "not installed"),
        ({"tensorflow": {"distribution": "tensorflow-cpu", "version": "2.15.1"}}, Status.FAILURE, "tensorflow", "too old"),
        ({"packages": {"tf_keras": "2.20.1"}}, Status.FAILURE, "keras", "does not pair"),
        ({"packages": {}}, Status.FAILURE, "keras", "no tf_keras"),
        ({"folder": {"path": "/w", "free": None, "problem": "Read-only file system"}}, Status.FAILURE, "folder", "Read-only"),
        ({"temporary": {"path": "/t", "free": 5 << 20, "problem": ""}}, Status.FAILURE, "temporary", "5 MB left"),
        ({"shm_free": 60 << 20}, Status.WARNING, "shared-memory", "60 MB"),
        ({"limits": {"open_files": 256}}, Status.WARNING, "limits", "256 open files"),
        ({"limits": {"processes": 100}}, Status.WARNING, "limits", "100 processes"),
        ({"limits": {"address_space": 8 << 30}}, Status.WARNING, "limits", "8.0 GB of address space"),
        ({"gpu_driver": "470.1"}, Status.WARNING, "gpus", "too old for CUDA 12"),
        ({"gpu_driver": "550.1"}, Status.WARNING, "gpus", "no nvidia-smi"),
        ({"variables": {"TF_CONFIG": "{}"}}, Status.WARNING, "variables", "TF_CONFIG is set"),
    ],
)
def test_what_is_wrong_is_found_with_what_to_do(changes: dict[str, Any], status: Status, check: str, words: str) -> None:
    checks = machine_checks(facts(**changes), Needs(legacy_keras=True))
    assert words in found(checks, status)[check]
    assert all(one.fix for one in checks if one.status is not Status.OK)


def test_gpus_that_a_job_asks_for_have_to_be_there() -> None:
    assert "asks for 2 GPUs" in found(machine_checks(FACTS, Needs(gpus=2)))["gpus"]
    seen = facts(gpus={"gpus": [GPU], "problem": ""}, gpu_driver="550.90", granted_gpus=["0"])
    assert found(machine_checks(seen, Needs(gpus=1)), Status.OK)["gpus"] == "1 (H200), driver 550.90, Spark gives 0"


@pytest.mark.parametrize(
    ("packages", "tensorflow", "python", "words"),
    [
        ({"numpy": "2.1.0"}, "2.17.0", "3.11.1", "TensorFlow 2.17.0 was built for NumPy 1"),
        ({"numpy": "2.1.0", "pandas": "2.2.1"}, "", "3.11.1", "pandas 2.2.1 was built for NumPy 1"),
        ({"numpy": "2.1.0", "pyarrow": "15.0.2"}, "", "3.11.1", "pyarrow 15.0.2 was built for NumPy 1"),
        ({"pyspark": "4.3.0", "pandas": "3.0.1"}, "", "3.11.1", "does not support pandas 3.0.1"),
        ({"pyspark": "4.3.0", "pyarrow": "14.0.0"}, "", "3.11.1", "needs pyarrow 15"),
        ({"pyspark": "3.5.9"}, "", "3.13.1", "does not support Python 3.13.1"),
    ],
)
def test_pairs_that_are_known_to_break_are_named(packages: dict[str, str], tensorflow: str, python: str, words: str) -> None:
    checks = list(pair_checks(packages, tensorflow, python))
    assert words in checks[0].found
    assert checks[0].status is Status.FAILURE
    assert checks[0].fix


def test_versions_are_compared_by_their_numbers() -> None:
    assert version_key("2.21.0rc1") == (2, 21, 0)
    assert version_key("2.9.1") < version_key("2.21.0")
    assert version_key("nightly") == ()


def test_the_one_that_differs_most_comes_first_with_what_the_others_have() -> None:
    machines = {
        "a": {"tensorflow": "2.21.0", "numpy": "2.4.6", "cores": "8"},
        "b": {"tensorflow": "2.20.0", "numpy": "1.26.4", "cores": "4"},
        "c": {"tensorflow": "2.21.0", "numpy": "2.4.6", "cores": "4"},
    }
    told = differences(machines)
    assert [(d.machine, d.aspect, d.has, d.majority, d.count, d.others) for d in told] == [
        ("b", "tensorflow", "2.20.0", "2.21.0", 2, 2),
        ("b", "numpy", "1.26.4", "2.4.6", 2, 2),
        ("a", "cores", "8", "4", 2, 2),
    ]


def test_the_driver_decides_between_two() -> None:
    machines = {"a": {"numpy": "2.4.6"}, "b": {"numpy": "1.26.4"}}
    assert [d.machine for d in differences(machines, {"numpy": "1.26.4"})] == ["a"]
    assert differences({"a": {"numpy": "1"}, "b": {"numpy": "1"}}, {"pandas": "2"}) == ()


def test_executors_of_one_host_are_told_apart() -> None:
    assert labels_of([executor(0), executor(1)]) == ("host-a", "host-b")
    assert labels_of([executor(0), executor(1, host="host-a")]) == ("host-a (executor 0)", "host-a (executor 1)")
    assert labels_of([executor(0, executor=""), executor(1, host="host-a", executor="")]) == ("host-a (task 0)", "host-a (task 1)")


def test_a_cluster_in_order_has_no_differences() -> None:
    report = cluster_report(probed(executor(0), executor(1), executor(2)), Needs(legacy_keras=True))
    assert report.differences == ()
    assert worst(report.checks) is Status.OK


def test_the_odd_executor_is_named_with_everything_that_is_wrong_there() -> None:
    refused = {"error": "Connection refused", "skew_s": 0.0, "within_s": 0.0}
    odd = executor(
        2,
        packages=FACTS["packages"] | {"keras": "3.0.0", "pyarrow": "26.0.0"},
        writes={"/models": "/models: Read-only file system"},
        driver=refused,
        peers={"0": refused},
        imports={
            "tensorflow": {"error": "", "version": "", "seconds": 1.0},
            "app:main_fun": {"error": "No module", "version": "", "seconds": 0.0},
        },
    )
    report = cluster_report(probed(executor(0), executor(1), odd), Needs())
    assert {difference.machine for difference in report.differences} == {"host-c"}
    wrong = {check.id: check for check in report.checks if check.status is Status.FAILURE}
    assert set(wrong) == {"same-versions", "storage", "reach-driver", "reach-executors", "entrypoint"}
    assert all(check.where == ("host-c",) and check.fix for check in wrong.values())
    assert wrong["same-versions"].found == "keras 3.0.0, where 3 of 3 others have 3.15.1"
    assert wrong["reach-executors"].found == "does not reach host-a (Connection refused)"
    small = [check for check in report.checks if check.status is Status.WARNING]
    assert ["pyarrow 26.0.0" in check.found for check in small] == [True]


def test_clocks_that_are_apart_are_a_warning_unless_the_network_is_as_slow() -> None:
    late = executor(0, driver={"error": "", "skew_s": 40.2, "within_s": 0.01})
    slow = executor(1, driver={"error": "", "skew_s": 4.0, "within_s": 3.0})
    checks = cluster_report(probed(late, slow), Needs()).checks
    assert [check.found for check in checks if check.status is Status.WARNING] == ["the clock is 40 s behind the driver's"]


def test_a_file_system_that_only_spark_reaches_is_a_warning() -> None:
    path = "hdfs://nn/x"
    one = executor(0, reads={path: "no client: hdfs://nn/x needs the Python package fsspec"})
    result = probed(one)
    result["driver"]["through_spark"] = {path: ""}
    assert "reached by Spark only" in found(cluster_report(result, Needs()).checks, Status.WARNING)["storage"]
    result["driver"]["through_spark"] = {path: "Connection refused"}
    assert "can not be read: Connection refused" in found(cluster_report(result, Needs()).checks)["storage"]


def test_an_empty_folder_is_a_warning() -> None:
    checks = cluster_report(probed(executor(0, reads={"/in": "no file is there"})), Needs()).checks
    assert found(checks, Status.WARNING) == {"storage": "/in has no files"}


def test_what_is_missing_of_a_cluster_and_settings_of_spark_are_told() -> None:
    result = probed(executor(0), problem="2 nodes need 2 executors, 1 available", hint="Ask for fewer.", settings=["x is on"])
    result["driver"]["settings"] = {"spark.python.worker.reuse": "False"}
    checks = cluster_report(result, Needs()).checks
    assert found(checks)["executors"] == "2 nodes need 2 executors, 1 available"
    assert set(found(checks, Status.WARNING)) == {"spark-settings", "worker-reuse"}


def test_the_same_finding_of_several_machines_is_said_once_and_failures_first() -> None:
    checks = [
        Check(id="x", status=Status.OK, found="fine", where=("a",)),
        Check(id="y", status=Status.OK, found="fine", where=("a",)),
        Check(id="x", status=Status.FAILURE, found="bad", where=("b",)),
        Check(id="x", status=Status.FAILURE, found="bad", where=("c",)),
    ]
    assert [(check.id, check.status, check.where) for check in merged(checks)] == [
        ("x", Status.FAILURE, ("b", "c")),
        ("y", Status.OK, ("a",)),
    ]


def test_the_report_for_people_begins_with_the_odd_one_out() -> None:
    odd = executor(2, packages=FACTS["packages"] | {"keras": "3.0.0"})
    report = cluster_report(probed(executor(0), executor(1), odd), Needs())
    console = Console(stdout=io.StringIO(), stderr=io.StringIO(), environ={})
    show(console, CheckResult(checks=report.checks, differences=report.differences))
    lines = console.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:3] == ["host-c differs:", "  keras  3.0.0   (3 of 3 others: 3.15.1)", ""]
    assert " ".join(lines[3].split()) == "failure same-versions host-c: keras 3.0.0, where 3 of 3 others have 3.15.1"
    assert lines[4].strip().startswith("Install the same versions")
    assert any(line.split()[:4] == ["ok", "reach-driver", "every", "executor:"] for line in lines)
    assert lines[-1].startswith("1 failure, 0 warnings, ")


def test_the_probe_of_a_job_tries_its_program_and_its_paths(tmp_path: Path) -> None:
    spec = (
        "name: digits\nentrypoint: app.py:main_fun\nnum_executors: 3\nnum_ps: 1\n"
        "args: {export_dir: model, log_dir: 'hdfs://nn/logs', rows: 5}\n"
        "data: {path: data/x.csv}\ntensorboard: {enabled: true, log_dir: /shared/logs}\n"
    )
    job = probe_job(resolve(spec, tmp_path))
    assert job.plan.entrypoint == "app:main_fun"
    assert job.plan.reads == (str(tmp_path / "data/x.csv"),)
    assert job.plan.writes == ("/shared/logs", str(tmp_path / "model"), "hdfs://nn/logs")
    assert (job.resolved.spec.name, job.resolved.spec.num_executors, job.resolved.spec.num_ps) == ("env-check", 3, 0)
    assert not job.resolved.spec.tensorboard.enabled


def test_this_machine_is_checked_and_the_result_kept(run_line: RunLine, tfos_home: Path) -> None:
    shown = run_line("tfos env-check").stdout
    assert "0 failures" in shown.splitlines()[-1]
    for check in (
        "java",
        "spark",
        "python",
        "tensorflow",
        "keras",
        "packages",
        "gpus",
        "shared-memory",
        "temporary",
        "limits",
        "tfos",
    ):
        assert f" {check} " in shown
    told = json.loads(run_line("tfos env-check --json").stdout)
    assert told["status"] in ("ok", "warning")
    kept = json.loads((tfos_home / "env-check.json").read_text())
    assert [check["check"] for check in kept["checks"]] == [check["check"] for check in told["checks"]]
    assert (tfos_home / "env-check.json").stat().st_mode & 0o777 == 0o600


def test_a_machine_without_java_or_spark_fails_with_3(run_line: RunLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    outcome = run_line("tfos env-check", 3)
    assert outcome.stdout.splitlines()[0].startswith("failure  java")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    told = json.loads(run_line("tfos env-check --json", 3).stdout)
    assert (told["status"], told["checks"][0]["check"]) == ("failure", "spark")
    assert told["checks"][0]["fix"]


def test_a_home_that_can_not_be_written_and_workers_that_are_not_reused_are_found(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# spark.python.worker.reuse true\nspark.python.worker.reuse   false\n")
    checks = submission_checks({"TFOS_HOME": "/proc/self/tfos", "SPARK_CONF_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert "can not be written" in found(checks)["home"]
    assert "is false" in found(checks, Status.WARNING)["worker-reuse"]


def test_options_that_change_a_spec_need_one(run_line: RunLine) -> None:
    assert "there is none" in run_line("tfos env-check --master yarn", 2).stderr


@pytest.mark.parametrize("names", [("one", "odd"), ("odd", "one")])
def test_between_two_machines_the_one_that_is_odd_otherwise_is_the_odd_one(names: tuple[str, str]) -> None:
    machines = {
        "one": {"keras": "3.15.1", "HADOOP_CONF_DIR": "not set", "write x": "ok"},
        "odd": {"keras": "3.0.1", "HADOOP_CONF_DIR": "/etc/odd", "write x": "Read-only file system"},
    }
    found = differences({name: machines[name] for name in names}, {"keras": "3.15.1"})
    assert {difference.machine for difference in found} == {"odd"}
    assert {difference.aspect for difference in found} == {"keras", "HADOOP_CONF_DIR", "write x"}
