"""Runs in cluster deploy mode without a cluster: a folder in place of HDFS, a manager that knows one application."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from fakes.cluster_program import APPLICATION, container_of

from tfos_cli.launch import Launch
from tfos_cli.remote.applications import ApplicationReport, reason_of_yarn
from tfos_cli.remote.catch_up import Unfollowed
from tfos_cli.remote.follower import ClusterFollower
from tfos_cli.remote.place import RemoteRun
from tfos_cli.runs import RunStore
from tfos_cli.spec.masters import MasterKind
from tfos_cli.ui.console import Console
from tfos_cli.ui.progress import PlainLines
from tfos_core.jobplan import FunctionRef, JobPlan, RemotePlan
from tfos_core.shim.status import RunStatus

__all__ = ("KILLED", "MEMORY", "SECRET", "Case", "FakeManager", "follow_and_be_killed", "send")

PROGRAM = Path(__file__).parent / "cluster_program.py"
SECRET = "hunter2hunter2"
MEMORY = "Container [pid=1] is running beyond the 'PHYSICAL' memory limit. Current usage: 1.1 GB of 1 GB physical memory used."


class FakeManager:
    """A manager that knows one application: alive while its driver is."""

    def __init__(self, folder: Path) -> None:
        self.container = container_of(folder)
        self.outcome, self.diagnostics = "FINISHED", ""
        self.killed: list[str] = []
        self.knows = True

    def find_id(self, line: str) -> str | None:
        return APPLICATION if APPLICATION in line else None

    def report(self, application_id: str) -> ApplicationReport | None:
        if not self.knows:
            return None
        if self.killed:
            return ApplicationReport(state="KILLED", outcome="KILLED", diagnostics="Application killed by user.")
        if self._driver() is not None:
            return ApplicationReport(state="RUNNING")
        return ApplicationReport(state="FINISHED", outcome=self.outcome, diagnostics=self.diagnostics)

    def kill(self, application_id: str) -> bool:
        self.killed.append(application_id)
        driver = self._driver()
        if driver is not None:
            driver.kill()
        return True

    def why(self, report: ApplicationReport) -> str:
        return reason_of_yarn(report.diagnostics)

    def _driver(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int((self.container / "pid").read_text()))
        except (OSError, ValueError, psutil.Error):
            return None
        return process if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else None


class Case:
    """A run in cluster deploy mode, and who follows it."""

    def __init__(self, tmp_path: Path, mode: str, *, how: str = "wait", **environment: str) -> None:
        self.run = RunStore(folder=tmp_path / "runs").create("job", master="yarn")
        self.record = tmp_path / "hdfs" / self.run.id
        self.stderr, self.stdout = io.StringIO(), io.StringIO()
        self.console = Console(stdout=self.stdout, stderr=self.stderr, environ={})
        plan = JobPlan(
            run_id=self.run.id,
            name="job",
            run_folder=str(self.run.folder),
            channel=None,
            entrypoint=FunctionRef(module="os.path", function="join", shown="apps/job.py:join"),
            args={},
            input_mode="tensorflow",
            num_nodes=1,
            secrets=("FAKE_SECRET",),
            remote=RemotePlan(record=f"file://{self.record}", master="yarn", submitted=time.time()),
        )
        self.run.plan_path.write_text(plan.to_json())
        (self.run.folder / "ship").mkdir()
        self.remote = RemoteRun(record=f"file://{self.record}", manager=MasterKind.YARN, master="yarn", towards="127.0.0.1")
        self.remote.write(self.run.folder)
        self.manager = FakeManager(self.run.folder)
        self.launch = Launch(
            argv=(sys.executable, str(PROGRAM), mode, str(self.run.folder), how),
            environment={**os.environ, "FAKE_SECRET": SECRET, **environment},
            cwd=None,
            start_timeout_s=60.0,
            secrets=("FAKE_SECRET",),
            scratch=(str(self.run.folder / "ship"),),
        )

    def follow(self, on_event: Callable[[str], None] | None = None) -> RunStatus:
        renderer = _Telling(self.console, on_event or (lambda _: None))
        return ClusterFollower(self.run, self.launch, lambda: renderer, self.remote, applications=self.manager).follow()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.run.events_path.read_text().splitlines()]

    def unfollowed(self) -> Unfollowed:
        return Unfollowed(self.run, self.remote, {}, applications=self.manager)


class _Telling(PlainLines):
    def __init__(self, console: Console, tell: Callable[[str], None]) -> None:
        super().__init__(console)
        self._tell = tell

    def on_event(self, line: str, ts: float, event: Any, view: Any) -> None:
        super().on_event(line, ts, event, view)
        self._tell(event.kind)


def send(number: signal.Signals, on: str) -> Callable[[str], None]:
    def tell(kind: str) -> None:
        if kind == on:
            os.kill(os.getpid(), number)

    return tell


KILLED = ApplicationReport(state="KILLED", outcome="KILLED")


def follow_and_be_killed(case: Case) -> subprocess.Popen[bytes]:
    """A detached follower that is killed when the nodes are ready."""
    follower = subprocess.Popen(
        [sys.executable, "-m", "tfos_cli.detached", str(case.run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert follower.stdin is not None
    follower.stdin.write(case.launch.to_json().encode())
    follower.stdin.close()
    until = time.monotonic() + 60
    while "cluster_ready" not in (case.run.events_path.read_text() if case.run.events_path.exists() else ""):
        assert time.monotonic() < until
        time.sleep(0.05)  # no child of this process writes it
    follower.kill()
    follower.wait()
    return follower
