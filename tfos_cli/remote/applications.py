"""Who runs an application in cluster deploy mode: how to see its id, ask how it is, and end it without its driver."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tfos_cli.remote.place import RemoteRun
from tfos_cli.spec.masters import MasterKind
from tfos_core.errors import TfosError

__all__ = ("ApplicationReport", "Applications", "YarnApplications", "applications_of", "parse_yarn_report")

_ASK_S = 60.0
_APPLICATION_ID = re.compile(r"\bapplication_[0-9]+_[0-9]+\b")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z -]*?)\s*:\s*(.*)$")
#: What YARN puts before the sentence about a container.
_PREAMBLE = re.compile(r"^(Failing this attempt\.)?\s*Diagnostics: ?(\[[0-9: .-]+\])?")
_OVER = ("FINISHED", "FAILED", "KILLED")
_CLIENT = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
#: What its classes reach into of Java, which newer releases close (Spark opens the same).
_OPENED = ("java.lang", "java.util", "java.net", "java.nio", "sun.nio.ch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationReport:
    """What the manager says of an application: `outcome` is empty while it goes on, then SUCCEEDED, FAILED or KILLED."""

    state: str
    outcome: str = ""
    diagnostics: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self.outcome)


class Applications(Protocol):
    """A manager's answers. Nothing here raises; who does not answer is unknown."""

    def find_id(self, line: str) -> str | None:
        """The id of the application in a line of spark-submit's output."""

    def report(self, application_id: str) -> ApplicationReport | None:
        """How it is; None when the manager does not say."""

    def kill(self, application_id: str) -> bool:
        """End it without asking its driver; whether the manager took the order."""

    def why(self, report: ApplicationReport) -> str:
        """Why it ended, for people, in a sentence; empty when the manager does not say."""


class YarnApplications:
    """YARN, through the client in Spark's own jars: no Hadoop has to be installed here.

    Args:
        environ: for Java, `HADOOP_USER_NAME` and the ticket cache of Kerberos.
    """

    def __init__(self, remote: RemoteRun, environ: Mapping[str, str]) -> None:
        self._remote = remote
        self._environ = environ

    def find_id(self, line: str) -> str | None:
        found = _APPLICATION_ID.search(line)
        return found[0] if found else None

    def report(self, application_id: str) -> ApplicationReport | None:
        text = self._ask("-status", application_id)
        return parse_yarn_report(text) if text is not None else None

    def kill(self, application_id: str) -> bool:
        return self._ask("-kill", application_id) is not None

    def why(self, report: ApplicationReport) -> str:
        return reason_of_yarn(report.diagnostics)

    def _ask(self, *words: str) -> str | None:
        """What the client prints; None when it fails."""
        home = self._environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        opens = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        classes = f"{self._remote.conf}:{self._remote.spark_home}/jars/*"
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *opens, "-cp", classes, _CLIENT, "application", *words]
        environment = {**os.environ, **self._environ, "HADOOP_CONF_DIR": self._remote.conf}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False, cwd="/"
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def applications_of(remote: RemoteRun, environ: Mapping[str, str]) -> Applications:
    """The manager of a run.

    Raises:
        TfosError: there is none that is known here.
    """
    if remote.manager is MasterKind.YARN:
        return YarnApplications(remote, environ)
    if remote.manager is MasterKind.KUBERNETES:
        from tfos_cli.remote.kubernetes import KubernetesApplications

        return KubernetesApplications(remote, environ)
    raise TfosError(f"nothing is known about applications of {remote.manager}")


def parse_yarn_report(text: str) -> ApplicationReport | None:
    """What `yarn application -status` prints, as far as it matters; None when it is no report."""
    fields: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        found = _FIELD.match(line)
        if found and (line.startswith("\t") or not last):
            last = found[1]
            fields[last] = found[2]
        elif last:
            fields[last] += f"\n{line}"  # diagnostics have several lines
    state = fields.get("State", "").strip()
    if not state:
        return None
    over = state in _OVER
    final = fields.get("Final-State", "").strip()
    outcome = ("KILLED" if state == "KILLED" else final if final and final != "UNDEFINED" else state) if over else ""
    return ApplicationReport(state=state, outcome=outcome, diagnostics=fields.get("Diagnostics", "").strip())


def reason_of_yarn(diagnostics: str) -> str:
    """The sentence that matters in YARN's diagnostics."""
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    for wanted in ("beyond the", "killed by user", "was killed by user", "Exception from container-launch", "due to"):
        for line in lines:
            if wanted in line:
                return _PREAMBLE.sub("", line)
    return lines[0] if lines else ""
