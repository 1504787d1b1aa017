"""`tfos env-check SPEC` on a Standalone cluster with a Worker that was made different on purpose."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.standalone import StandaloneCluster, WorkerOptions

if TYPE_CHECKING:
    from tests.conftest import RunLine

SPEC = """\
name: checked
entrypoint: apps/job.py:main_fun
args: {export_dir: exports/model}
num_executors: 2
data: {path: data, format: csv}
"""
LONGEST_S = 150


def other_package(folder: Path, name: str, version: str) -> str:
    """A folder for PYTHONPATH in which pip's records say that a package has another version."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def read_only(folder: Path) -> tuple[str, ...]:
    """What starts a command in a mount namespace of its own, in which a folder is read-only, for root too."""
    prefix = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"', str(folder))
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, timeout=30, check=False)
    if tried.returncode != 0:
        pytest.skip(f"mount namespaces are not permitted: {tried.stderr.strip()}")
    return prefix


def write_job(folder: Path) -> None:
    (folder / "apps").mkdir()
    (folder / "apps" / "job.py").write_text(
        "import neighbour\n\n\ndef main_fun(args, ctx):\n    raise AssertionError('never run')\n"
    )
    (folder / "apps" / "neighbour.py").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "part.csv").write_text("1\n")
    (folder / "exports").mkdir()
    (folder / "job.yaml").write_text(SPEC)


def test_the_worker_with_another_package_and_a_read_only_folder_is_the_odd_one_out(
    run_line: RunLine, tmp_path: Path, tfos_home: Path, nothing_left: None
) -> None:
    write_job(tmp_path)
    other = other_package(tmp_path / "packages", "keras", "3.0.1")
    odd = WorkerOptions(environment={"PYTHONPATH": other, "HADOOP_CONF_DIR": "/etc/odd"}, prefix=read_only(tmp_path / "exports"))
    with StandaloneCluster([WorkerOptions(), odd]) as cluster:
        outcome = run_line(f"tfos env-check job.yaml --json --master {cluster.url}", 3, fresh=True, timeout_s=LONGEST_S)
    told = json.loads(outcome.stdout)

    aspects = {difference["aspect"]: difference for difference in told["differences"]}
    (machine,) = {difference["machine"] for difference in told["differences"]}
    assert aspects["keras"] == {
        "machine": machine,
        "aspect": "keras",
        "has": "3.0.1",
        "majority": aspects["keras"]["majority"],
        "count": 2,
        "others": 2,
    }
    export = str(tmp_path / "exports" / "model")
    assert "Read-only file system" in aspects[f"write {export}"]["has"]
    assert aspects["HADOOP_CONF_DIR"]["has"] == "/etc/odd"

    wrong = {check["check"]: check for check in told["checks"] if check["status"] == "failure"}
    assert set(wrong) == {"same-versions", "storage"}
    assert all(check["where"] == [machine] for check in wrong.values())
    fine = {check["check"] for check in told["checks"] if check["status"] == "ok"}
    assert {"java", "executors", "entrypoint", "tensorflow", "reach-driver", "reach-executors", "clock"} <= fine

    kept = json.loads((tfos_home / "runs" / told["run_id"] / "env-check.json").read_text())
    assert kept["differences"] == told["differences"]
    assert json.loads(run_line("tfos runs --json").stdout)[0]["status"] == "success"
    assert list((tmp_path / "exports").iterdir()) == []


def test_a_master_that_is_not_there_is_a_failure_with_its_reason(run_line: RunLine, tmp_path: Path) -> None:
    write_job(tmp_path)
    outcome = run_line("tfos env-check job.yaml --master spark://127.0.0.1:1", 3, fresh=True, timeout_s=LONGEST_S)
    first = outcome.stdout.splitlines()[0]
    assert first.startswith("failure  job")
    assert "spark://127.0.0.1:1" in first
