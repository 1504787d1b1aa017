"""Drivers in pods: what Spark's client prints about them, and what that means for a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.submissions import SPECS, resolve

from tfos_cli.remote.applications import applications_of
from tfos_cli.remote.kubernetes import KubernetesApplications, parse_pod_report
from tfos_cli.remote.place import RemoteRun
from tfos_cli.remote.verdict import error_of
from tfos_core.errors import InterruptedRunError, TfosError
from tfos_core.shim.errors import DriverLostError

STATUS = """\
26/11/29 21:30:30 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Submitting a request for the status of submission training:digits-driver in k8s://https://k8s:6443.
Application status (driver):
\t pod name: digits-driver
\t namespace: training
\t labels: spark-role -> driver, spark-app-selector -> x
\t creation time: 2026-01-01T00:00:00Z
\t phase: {phase}
\t container status:
\t\t container name: spark-kubernetes-driver
\t\t container image: example/spark:4.3.0
"""
KILLED = "\t\t container state: terminated\n\t\t exit code: 137\n\t\t termination reason: OOMKilled\n"
NO_IMAGE = "\t\t container state: waiting\n\t\t pending reason: ImagePullBackOff\n"
GONE = "Submitting a request for the status of submission training:x in k8s://https://k8s:6443.\nApplication not found.\n"
POD = "training:digits-driver"


def remote_of(tmp_path: Path, conf: str = "") -> RemoteRun:
    spec = resolve(SPECS["kubernetes-cluster"].replace("conf: {", f"conf: {{{conf}"), tmp_path).spec
    remote = RemoteRun.of(spec, "r1", {}, spark_home=Path("/opt/spark"))
    assert remote is not None
    return remote


@pytest.mark.parametrize(
    ("text", "state", "outcome", "words"),
    [
        (STATUS.format(phase="Running"), "Running", "", ""),
        (STATUS.format(phase="Succeeded"), "Succeeded", "SUCCEEDED", ""),
        (STATUS.format(phase="Failed") + KILLED, "Failed", "FAILED", "OOMKilled"),
        (STATUS.format(phase="Pending") + NO_IMAGE, "Pending", "", "ImagePullBackOff"),
        (GONE, "gone", "KILLED", "deleted"),
        ("No applications found.\n", "gone", "KILLED", "deleted"),
    ],
)
def test_what_spark_says_of_a_pod_is_understood(text: str, state: str, outcome: str, words: str) -> None:
    report = parse_pod_report(text)
    assert report is not None
    assert (report.state, report.outcome) == (state, outcome)
    assert words in report.diagnostics


def test_what_is_no_report_is_none() -> None:
    assert parse_pod_report("Exception in thread main: no route to host\n") is None


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (STATUS.format(phase="Failed") + KILLED, DriverLostError, "killed for memory"),
        (GONE, InterruptedRunError, "its pod was deleted"),
        (STATUS.format(phase="Succeeded"), DriverLostError, "did not say how the job went"),
    ],
)
def test_a_pod_that_ended_without_a_word_is_judged(text: str, error: type[TfosError], words: str, tmp_path: Path) -> None:
    report = parse_pod_report(text)
    assert report is not None
    found = error_of(POD, report, why=applications_of(remote_of(tmp_path), {}).why(report), driver_started=True)
    assert isinstance(found, error)
    assert words in found.message
    assert "yarn" not in (found.hint or "")


@pytest.mark.parametrize(
    "line",
    [
        "INFO Client: Deployed Spark application d with application ID s-2 and submission ID t:d-1c-driver into Kubernetes",
        "INFO PodWatcher: Waiting for application d with application ID s and submission ID t:d-1c-driver to finish...",
    ],
)
def test_the_pod_is_found_in_what_spark_submit_prints(line: str, tmp_path: Path) -> None:
    applications = KubernetesApplications(remote_of(tmp_path), {})
    assert applications.find_id(line) == "t:d-1c-driver"
    assert applications.find_id("26/11/29 INFO KubernetesUtils: Uploading file: /x/plan.json to dest: s3a://b/plan.json") is None


def test_the_login_is_that_of_the_submission_and_no_secret_is_kept(tmp_path: Path) -> None:
    conf = (
        "spark.kubernetes.context: lab, spark.kubernetes.authenticate.submission.oauthTokenFile: /me/token, "
        "spark.kubernetes.authenticate.submission.oauthToken: open-sesame, "
    )
    remote = remote_of(tmp_path, conf)
    assert remote.client == {
        "spark.kubernetes.context": "lab",
        "spark.kubernetes.authenticate.submission.oauthTokenFile": "/me/token",
    }
    remote.write(tmp_path)
    assert RemoteRun.read(tmp_path) == remote
    assert "open-sesame" not in (tmp_path / "remote.json").read_text()


def test_a_spark_submit_that_does_not_start_says_nothing(tmp_path: Path) -> None:
    applications = KubernetesApplications(remote_of(tmp_path), {})
    assert applications.report(POD) is None
    assert applications.kill(POD) is False
