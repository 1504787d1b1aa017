"""Drivers in pods: `spark-submit --status` and `--kill`, which speak to the API server as the submission did."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tfos_cli.remote.applications import ApplicationReport
from tfos_cli.remote.place import RemoteRun

__all__ = ("KubernetesApplications", "parse_pod_report", "reason_of_pod")

_ASK_S = 60.0
#: Spark's client says it when it has made the pod, and again when it begins to wait for its end.
_SUBMISSION_ID = re.compile(r"submission ID ([a-z0-9.-]+:[a-z0-9.-]+)\b")
_FIELD = re.compile(r"^\s*([a-z][a-z ]*?)\s*: ?(.*)$")
_OUTCOMES = {"Succeeded": "SUCCEEDED", "Failed": "FAILED"}
_GONE = re.compile(r"^(Application not found|No applications found)", re.MULTILINE)


class KubernetesApplications:
    """The driver's pod; an application's id is `NAMESPACE:POD`.

    Args:
        environ: for Java, and the user's kubeconfig.
    """

    def __init__(self, remote: RemoteRun, environ: Mapping[str, str]) -> None:
        self._remote = remote
        self._environ = environ

    def find_id(self, line: str) -> str | None:
        found = _SUBMISSION_ID.search(line)
        return found[1] if found else None

    def report(self, application_id: str) -> ApplicationReport | None:
        text = self._ask("--status", application_id)
        return parse_pod_report(text) if text is not None else None

    def kill(self, application_id: str) -> bool:
        return self._ask("--kill", application_id) is not None

    def why(self, report: ApplicationReport) -> str:
        return reason_of_pod(report.diagnostics)

    def _ask(self, option: str, application_id: str) -> str | None:
        """What spark-submit prints; None when it fails."""
        submit = str(Path(self._remote.spark_home) / "bin" / "spark-submit")
        command = [submit, "--master", self._remote.master]
        for name, value in self._remote.client.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**os.environ, **self._environ, "SPARK_HOME": self._remote.spark_home}
        try:
            done = subprocess.run(
                [*command, option, application_id],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_ASK_S,
                check=False,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def parse_pod_report(text: str) -> ApplicationReport | None:
    """What `spark-submit --status` prints of a driver's pod, as far as it matters; None when it is no report."""
    if _GONE.search(text):
        return ApplicationReport(state="gone", outcome="KILLED", diagnostics="its pod was deleted")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if found := _FIELD.match(line):
            fields.setdefault(found[1], found[2].strip())
    phase = fields.get("phase", "")
    if not phase:
        return None
    told = {name: fields[name] for name in ("termination reason", "exit code", "pending reason") if fields.get(name)}
    diagnostics = ", ".join(f"{name} {value}" for name, value in told.items())
    return ApplicationReport(state=phase, outcome=_OUTCOMES.get(phase, ""), diagnostics=diagnostics)


def reason_of_pod(diagnostics: str) -> str:
    """The diagnostics are one sentence already."""
    return diagnostics.replace("termination reason OOMKilled", "the kernel killed it for memory (OOMKilled)")
