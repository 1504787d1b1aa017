"""The follower and the driver shim together, over an engine without Spark: signals, deaths, and what is left afterwards."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tfos_cli.follower import Follower
from tfos_cli.launch import Launch
from tfos_cli.runs import Run, RunStore
from tfos_cli.submit.process import leftovers
from tfos_cli.ui.console import Console
from tfos_cli.ui.progress import JsonLines, PlainLines
from tfos_core.events import Submitted, parse_line
from tfos_core.jobplan import FunctionRef, JobPlan
from tfos_core.shim.status import RunStatus

PROGRAM = Path(__file__).parents[2] / "fakes" / "driver_program.py"


class Case:
    """A run whose spark-submit is a shell that runs the fake driver, as the JVM does."""

    def __init__(self, tmp_path: Path, mode: str, **changes: object) -> None:
        self.run: Run = RunStore(folder=tmp_path / "runs").create("job", master="nowhere")
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        self.console = Console(stdout=self.stdout, stderr=self.stderr, environ={})
        plan = JobPlan(
            run_id=self.run.id,
            name="job",
            run_folder=str(self.run.folder),
            channel=str(self.run.channel_path),
            entrypoint=FunctionRef(module="os.path", function="join", shown="apps/job.py:join"),
            args={},
            input_mode="tensorflow",
            num_nodes=1,
            secrets=("FAKE_SECRET",),
        )
        self.run.plan_path.write_text(plan.to_json())
        self.scratch = self.run.folder / "spark"
        self.scratch.mkdir()
        launch = Launch(
            argv=("sh", "-c", '"$@"; exit $?', "sh", sys.executable, str(PROGRAM), mode, str(self.run.folder)),
            environment={**os.environ, "FAKE_SECRET": "hunter2hunter2", "TMPDIR": str(tmp_path)},
            cwd=None,
            start_timeout_s=30.0,
            secrets=("FAKE_SECRET",),
            scratch=(str(self.scratch),),
        )
        self.launch = replace(launch, **changes)  # type: ignore[arg-type]

    def follow(self, on_event: Callable[[str], None] | None = None, *, json_lines: bool = False) -> RunStatus:
        renderer = (JsonLines if json_lines else PlainLines)(self.console)
        if on_event is not None:
            renderer = _Telling(self.console, on_event)
        return Follower(self.run, self.launch, lambda: renderer).follow()

    def assert_nothing_left(self, tmp_path: Path) -> None:
        assert not self.scratch.exists()
        assert not self.run.channel_path.exists()
        assert not list(tmp_path.glob("tfos-*"))
        assert [t.name for t in threading.enumerate() if t.name.startswith("tfos-")] == []

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.run.events_path.read_text().splitlines()]


class _Telling(PlainLines):
    def __init__(self, console: Console, tell: Callable[[str], None]) -> None:
        super().__init__(console)
        self._tell = tell

    def on_event(self, line, ts, event, view) -> None:  # type: ignore[no-untyped-def]
        super().on_event(line, ts, event, view)
        self._tell(event.kind)


def _send(number: signal.Signals, on: str) -> Callable[[str], None]:
    """Sends a signal to this process when an event of that kind arrives."""

    def tell(kind: str) -> None:
        if kind == on:
            os.kill(os.getpid(), number)

    return tell


def test_a_good_run_ends_with_0_and_leaves_only_its_record(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    status = case.follow()
    assert (status.exit_code, status.status, status.is_finished) == (0, "success", True)
    assert status.application_id == "app-1"
    assert case.events()[0] == "submitted"
    assert case.events()[-1] == "result"
    case.assert_nothing_left(tmp_path)


def test_the_first_event_is_recorded_before_the_start_and_shown_after_it(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    started = []

    def choose() -> PlainLines:
        started.append((case.events()[0], case.run.channel_path.exists(), follower._process is not None))
        return PlainLines(case.console)

    follower = Follower(case.run, case.launch, choose)
    follower.follow()
    assert started == [("submitted", True, True)]
    first = case.run.events_path.read_text().splitlines()[0]
    parsed = parse_line(first)
    assert parsed is not None
    assert parsed[1] == Submitted(run_id=case.run.id, name="job", master="nowhere", run_folder=str(case.run.folder))
    assert "submitting job to nowhere" in case.stderr.getvalue()


def _break(on: str) -> Callable[[str], None]:
    """As when the reader of our output has gone away by the time of that event."""

    def tell(kind: str) -> None:
        if kind == on:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    return tell


@pytest.mark.parametrize("event", ["submitted", "cluster_ready"])
def test_a_reader_of_the_output_that_goes_away_stops_the_run_whenever_that_is(tmp_path: Path, event: str) -> None:
    case = Case(tmp_path, "wait")
    status = case.follow(_break(event))
    assert (status.exit_code, status.status, status.is_finished) == (130, "interrupted", True)
    assert "SIGPIPE" in status.error
    case.assert_nothing_left(tmp_path)


def test_prints_of_user_and_node_go_to_stdout_and_the_talk_of_spark_does_not(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    case.follow()
    assert "what the user prints" in case.stdout.getvalue()
    assert "worker:0 | hello from the node" in case.stdout.getvalue()
    assert "what Spark says" not in case.stdout.getvalue() + case.stderr.getvalue()
    assert "what Spark says" in case.run.driver_log.read_text()


def test_with_json_every_line_of_stdout_is_an_event(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    case.follow(json_lines=True)
    shown = [json.loads(line)["event"] for line in case.stdout.getvalue().splitlines()]
    assert shown == case.events()


def test_secrets_are_in_no_file_and_on_no_screen(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    case.follow()
    written = [path for path in case.run.folder.rglob("*") if path.is_file()]
    assert (case.run.nodes_folder / "worker-0.log") in written
    assert all("hunter2hunter2" not in path.read_text() for path in written)
    assert "hunter2hunter2" not in case.stdout.getvalue() + case.stderr.getvalue()


def test_a_failing_node_gives_1_and_its_traceback(tmp_path: Path) -> None:
    case = Case(tmp_path, "fail")
    status = case.follow()
    assert status.exit_code == 1
    assert status.first_failure is not None
    assert status.first_failure["node"] == "worker:0"
    assert "Traceback: no" in case.stderr.getvalue()
    assert f"tfos logs {case.run.id} --node worker:0" in case.stderr.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_shuts_the_cluster_down_and_ends_with_130(tmp_path: Path, number: signal.Signals) -> None:
    case = Case(tmp_path, "wait")
    status = case.follow(_send(number, "cluster_ready"))
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert number.name in status.error
    case.assert_nothing_left(tmp_path)


def test_a_second_signal_kills_a_driver_that_does_not_listen(tmp_path: Path) -> None:
    case = Case(tmp_path, "ignore")

    def twice(kind: str) -> None:
        if kind == "cluster_ready":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    status = case.follow(twice)
    assert status.exit_code == 130
    assert "killed by a second signal" in status.error
    case.assert_nothing_left(tmp_path)


def test_a_signal_before_the_driver_is_there_ends_with_130(tmp_path: Path) -> None:
    case = Case(tmp_path, "hang")
    status = case.follow(_send(signal.SIGINT, "submitted"))
    assert status.exit_code == 130
    case.assert_nothing_left(tmp_path)


def test_a_driver_killed_without_a_status_gives_7(tmp_path: Path) -> None:
    case = Case(tmp_path, "kill-self")
    status = case.follow()
    assert (status.exit_code, status.status) == (7, "failed")
    assert "without saying how the job went" in status.error
    assert case.events()[-1] == "result"
    case.assert_nothing_left(tmp_path)


def test_a_refused_submission_gives_5_with_the_last_lines_that_mean_something(tmp_path: Path) -> None:
    case = Case(tmp_path, "refuse")
    status = case.follow()
    assert status.exit_code == 5
    assert "nowhere" in status.error
    assert status.first_failure is not None
    assert list(status.first_failure["last_lines"]) == ["ERROR Master: this application is not welcome"]


def test_a_context_that_can_not_start_gives_5_with_sparks_reason(tmp_path: Path) -> None:
    status = Case(tmp_path, "no-master").follow()
    assert status.exit_code == 5
    assert "All masters are unresponsive" in status.error


def test_a_driver_that_never_starts_gives_5_when_its_time_is_over(tmp_path: Path) -> None:
    case = Case(tmp_path, "hang", start_timeout_s=0.5)
    status = case.follow()
    assert status.exit_code == 5
    assert "did not start the application on nowhere" in status.error
    case.assert_nothing_left(tmp_path)


def test_a_spark_submit_that_is_missing_gives_5(tmp_path: Path) -> None:
    status = Case(tmp_path, "good", argv=("/nowhere/spark-submit",)).follow()
    assert status.exit_code == 5
    assert "/nowhere/spark-submit" in status.error


def test_an_unreachable_master_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    store = RunStore(folder=tmp_path / "runs")
    run = store.create("job", master="spark://127.0.0.1:1")
    status = Follower(run, case.launch, lambda: PlainLines(case.console)).follow()
    assert status.exit_code == 5
    assert "spark://127.0.0.1:1" in status.error
    assert not run.driver_log.exists()


def test_when_the_follower_is_killed_the_driver_ends_the_job_and_cleans_up(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    child = subprocess.Popen(
        [sys.executable, "-m", "tfos_cli.detached", str(case.run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stderr is not None
    child.stdin.write(case.launch.to_json())
    child.stdin.close()
    assert any("cluster ready" in line for line in child.stderr)
    driver = psutil.Process(case.run.status().driver.pid)  # type: ignore[union-attr]
    child.kill()
    child.wait(10)
    child.stderr.close()
    driver.wait(20)
    status = case.run.status()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert "is gone" in status.error
    cleaners = [p for p in psutil.process_iter(["cmdline"]) if str(case.scratch) in (p.info["cmdline"] or [])]
    psutil.wait_procs(cleaners, timeout=20)
    assert not case.scratch.exists()
    assert not list(tmp_path.glob("tfos-*"))


def test_killing_takes_processes_of_other_groups_and_sessions_with_it(tmp_path: Path) -> None:
    """Python workers of Spark make their own group, supervisors their own session."""
    code = (
        "import os, subprocess, sys, time\n"
        "mark = dict(os.environ, TFOS_NODE=sys.argv[1] + ':g:worker:0')\n"
        "subprocess.Popen(['sleep', '60'], env=mark, start_new_session=True)\n"
        "subprocess.Popen(['sleep', '60'], process_group=0)\n"
        "time.sleep(60)\n"
    )
    case = Case(tmp_path, "hang")
    case.launch = replace(case.launch, argv=(sys.executable, "-c", code, case.run.id), start_timeout_s=2.0)
    assert case.follow().exit_code == 5
    assert leftovers(-1, case.run.id) == []
