"""Cluster deploy mode without a cluster: the real follower, link, uplink and driver shim, with a folder between them."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from fakes.cluster_program import APPLICATION, container_of

from tfos_cli.launch import Launch
from tfos_cli.remote.applications import ApplicationReport, reason_of_yarn
from tfos_cli.remote.catch_up import Unfollowed
from tfos_cli.remote.follower import ClusterFollower
from tfos_cli.remote.place import RemoteRun, private_path
from tfos_cli.runs import RunStore
from tfos_cli.spec.masters import MasterKind
from tfos_cli.ui.console import Console
from tfos_cli.ui.progress import PlainLines
from tfos_core.jobplan import FunctionRef, JobPlan, RemotePlan
from tfos_core.shim.status import RunStatus

if TYPE_CHECKING:
    from tests.conftest import RunLine

PROGRAM = Path(__file__).parents[2] / "fakes" / "cluster_program.py"
SECRET = "hunter2hunter2"
MEMORY = "Container [pid=1] is running beyond the 'PHYSICAL' memory limit. Current usage: 1.1 GB of 1 GB physical memory used."


class FakeManager:
    """A manager that knows one application: alive while its driver is."""

    def __init__(self, folder: Path) -> None:
        self.container = container_of(folder)
        self.outcome, self.diagnostics = "FINISHED", ""
        self.killed: list[str] = []

    def find_id(self, line: str) -> str | None:
        return APPLICATION if APPLICATION in line else None

    def report(self, application_id: str) -> ApplicationReport:
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
        return ClusterFollower(self.run, self.launch, renderer, self.remote, applications=self.manager).follow()

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


def _send(number: signal.Signals, on: str) -> Callable[[str], None]:
    def tell(kind: str) -> None:
        if kind == on:
            os.kill(os.getpid(), number)

    return tell


@pytest.fixture
def taken_port() -> Iterator[str]:
    """A port on which nothing else can listen: there is no live connection then."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield str(holder.getsockname()[1])


@pytest.mark.parametrize("way", ["live", "record"])
def test_a_good_run_ends_with_0_and_its_record_is_here_and_there(tmp_path: Path, way: str, taken_port: str) -> None:
    case = Case(tmp_path, "good", **({} if way == "live" else {"TFOS_SERVER_PORT": taken_port}))
    status = case.follow()
    assert (status.exit_code, status.status, status.is_finished) == (0, "success", True), case.stderr.getvalue()
    assert status.application_id == "app-1", "the driver knows it best"
    assert status.record == case.remote.record
    assert case.events()[0] == "submitted"
    assert case.events().count("cluster_ready") == 1
    assert case.events()[-1] == "result"
    assert f"application {APPLICATION}" in case.stderr.getvalue()
    assert ("no live connection" in case.stderr.getvalue()) == (way == "record")
    assert "hello from the node" in (case.run.nodes_folder / "worker-0.log").read_text()
    assert "what the user prints" in (case.run.nodes_folder / "driver-0.log").read_text()
    there = json.loads((case.record / "status.json").read_text())
    assert (there["exit_code"], there["state"]) == (0, "finished")
    assert case.record.stat().st_mode & 0o777 == 0o700
    assert [t.name for t in threading.enumerate() if t.name.startswith("tfos-")] == []


def test_secrets_reach_the_driver_and_are_in_no_record_nor_on_a_screen(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    case.follow()
    assert not private_path(case.run.folder).exists()
    written = [path for folder in (case.run.folder, case.record) for path in folder.rglob("*") if path.is_file()]
    assert case.record / "000000000001.jsonl" in written
    assert all(SECRET not in path.read_text() for path in written)
    assert SECRET not in case.stdout.getvalue() + case.stderr.getvalue()
    assert SECRET in (container_of(case.run.folder) / "tfos-private.json").read_text()


def test_a_failing_node_gives_1_and_its_traceback(tmp_path: Path) -> None:
    case = Case(tmp_path, "fail")
    status = case.follow()
    assert status.exit_code == 1
    assert status.first_failure is not None
    assert status.first_failure["node"] == "worker:0"
    assert "Traceback: no" in case.stderr.getvalue()


@pytest.mark.parametrize("way", ["live", "record"])
def test_a_signal_shuts_the_cluster_down_whichever_way_it_reaches_the_driver(tmp_path: Path, way: str, taken_port: str) -> None:
    case = Case(tmp_path, "wait", **({} if way == "live" else {"TFOS_SERVER_PORT": taken_port}))
    status = case.follow(_send(signal.SIGTERM, "cluster_ready"))
    assert (status.exit_code, status.status) == (130, "interrupted"), case.stderr.getvalue()
    assert "SIGTERM" in status.error
    assert case.manager.killed == []
    assert json.loads((case.record / "cancel.json").read_text())["reason"].startswith("SIGTERM")


def test_a_second_signal_kills_the_application(tmp_path: Path) -> None:
    case = Case(tmp_path, "ignore")
    numbers = iter([signal.SIGINT, signal.SIGINT])

    def tell(kind: str) -> None:
        if kind == "cluster_ready":
            for number in numbers:
                os.kill(os.getpid(), number)

    status = case.follow(tell)
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert "killed by a second signal" in status.error
    assert case.manager.killed == ["app-1"] or case.manager.killed == [APPLICATION]


def test_a_driver_that_was_killed_for_memory_is_named_as_such(tmp_path: Path) -> None:
    case = Case(tmp_path, "kill-self")
    case.manager.outcome = "FAILED"
    case.manager.diagnostics = f"Application failed 1 times due to AM Container exited with  exitCode: -104\nDiagnostics: {MEMORY}"
    status = case.follow()
    assert status.exit_code == 7
    assert "killed for memory" in status.error
    assert "1.1 GB of 1 GB" in status.error
    assert "spark.driver.memoryOverhead" in status.hint
    assert case.events()[-1] == "result"


def test_an_application_that_was_killed_from_outside_is_interrupted(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    status = case.follow(lambda kind: case.manager.kill(APPLICATION) if kind == "cluster_ready" else None)
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert "was killed: Application killed by user." in status.error


def test_a_refused_submission_gives_5_and_the_reason(tmp_path: Path) -> None:
    case = Case(tmp_path, "refuse")
    status = case.follow()
    assert status.exit_code == 5
    assert "queue ml does not exist" in case.stderr.getvalue()


def test_a_signal_while_the_application_waits_for_its_driver_has_the_manager_end_it(tmp_path: Path) -> None:
    case = Case(tmp_path, "queued")
    case.manager.report = lambda _: ApplicationReport(state="ACCEPTED") if not case.manager.killed else KILLED  # type: ignore[method-assign]
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    status = case.follow()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert case.manager.killed == [APPLICATION]


KILLED = ApplicationReport(state="KILLED", outcome="KILLED")


def test_a_spark_submit_that_does_not_wait_is_no_end(tmp_path: Path) -> None:
    case = Case(tmp_path, "good", how="leave")
    status = case.follow()
    assert (status.exit_code, status.status) == (0, "success"), case.stderr.getvalue()


def test_a_run_whose_follower_was_killed_goes_on_and_is_brought_home_later(tmp_path: Path, run_line: RunLine) -> None:
    case = Case(tmp_path, "wait")
    follower = _follow_and_be_killed(case)
    status = case.run.status()
    assert not status.is_finished
    assert not case.run.is_abandoned(status), "its driver is on the cluster"
    assert follower.poll() is not None
    unfollowed = case.unfollowed()
    assert not unfollowed.read().is_finished
    assert unfollowed.request_end("tfos cancel")
    assert not unfollowed.request_end("tfos cancel"), "asked before"
    until = time.monotonic() + 30
    while not unfollowed.read().is_finished:
        assert time.monotonic() < until
        time.sleep(0.1)  # the record is on a file system that tells nobody
    status = case.run.status()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert case.events().count("cluster_ready") == 1
    assert case.events()[-1] == "result"
    assert "hello from the node" in (case.run.nodes_folder / "worker-0.log").read_text()


def test_a_run_whose_driver_died_unseen_is_ended_by_what_the_manager_says(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    _follow_and_be_killed(case)
    case.manager.outcome, case.manager.diagnostics = "FAILED", MEMORY
    unfollowed = case.unfollowed()
    assert not unfollowed.ask_manager().is_finished
    psutil.Process(int((container_of(case.run.folder) / "pid").read_text())).kill()
    until = time.monotonic() + 30
    while not (status := unfollowed.ask_manager()).is_finished:
        assert time.monotonic() < until
        time.sleep(0.1)  # a killed process is there until init has seen it
    assert status.exit_code == 7
    assert "killed for memory" in status.error


def _follow_and_be_killed(case: Case) -> subprocess.Popen[bytes]:
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
