"""From a launch to a follower in the background, and what is done about runs that nobody follows any more."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tfos_cli.launch import Launch
from tfos_cli.runs import RunStore
from tfos_cli.submission import Submission, follow_detached, start_timeout_s, sweep
from tfos_cli.submit.errors import SubmitError
from tfos_core.jobplan import FunctionRef, JobPlan
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import ProcessIdentity, RunState

PROGRAM = Path(__file__).parents[2] / "fakes" / "driver_program.py"


class Prepared:
    def __init__(self) -> None:
        self.cleaned = 0

    def clean(self) -> None:
        self.cleaned += 1


def submission(tmp_path: Path, *, argv: tuple[str, ...] | None = None) -> Submission:
    run = RunStore(folder=tmp_path / "runs").create("job", master="nowhere")
    plan = JobPlan(
        run_id=run.id,
        name="job",
        run_folder=str(run.folder),
        channel=str(run.channel_path),
        entrypoint=FunctionRef(module="os.path", function="join", shown="x.py:join"),
        args={},
        input_mode="tensorflow",
        num_nodes=1,
        detached=True,
    )
    run.plan_path.write_text(plan.to_json())
    launch = Launch(
        argv=argv or ("sh", "-c", '"$@"; exit $?', "sh", sys.executable, str(PROGRAM), "wait", str(run.folder)),
        environment={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=None,
        start_timeout_s=30.0,
    )
    prepared: Any = Prepared()
    return Submission(run, prepared, launch)


def test_a_detached_follower_goes_on_after_the_start_and_a_signal_to_it_ends_the_run(tmp_path: Path) -> None:
    submitted = submission(tmp_path)
    follow_detached(submitted)
    follower = submitted.run.status().follower
    assert follower is not None
    process = psutil.Process(follower.pid)
    assert process.is_running()
    assert os.getsid(process.pid) == process.pid
    assert json.loads(submitted.run.events_path.read_text().splitlines()[0])["event"] == "submitted"
    _await_event(submitted, "cluster_ready")
    os.kill(process.pid, signal.SIGTERM)
    process.wait(30)
    status = submitted.run.status()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert status.error.startswith("the run was stopped: SIGTERM")
    assert "SIGTERM: shutting the cluster down" in (submitted.run.folder / "follower.log").read_text()


def test_a_follower_that_does_not_start_is_an_error_that_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = submission(tmp_path)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SubmitError, match="did not start") as caught:
        follow_detached(submitted)
    assert "follower.log" in str(caught.value.hint)
    assert submitted.prepared.cleaned == 1  # type: ignore[attr-defined]


def test_a_launch_survives_its_way_to_another_process(tmp_path: Path) -> None:
    launch = submission(tmp_path).launch
    assert Launch.from_json(launch.to_json()) == launch


def test_an_abandoned_run_is_finished_and_cleaned_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    store = RunStore(folder=tmp_path / "runs")
    dead, living = store.create("dead", master=""), store.create("living", master="")
    for run in (dead, living):
        (run.folder / "spark" / "local").mkdir(parents=True)
        run.channel_path.write_text("{}")
    with RecordWriter(dead.folder, Redactor(())) as record:
        record.update(follower=ProcessIdentity(pid=os.getpid(), start_time=1), state=RunState.RUNNING)
    sweep(store)
    assert (dead.status().exit_code, dead.status().is_finished) == (7, True)
    assert not (dead.folder / "spark").exists()
    assert not dead.channel_path.exists()
    assert (living.folder / "spark" / "local").exists()
    assert not living.status().is_finished


@pytest.mark.parametrize(
    ("master", "packages", "pack", "limit"),
    [
        (None, (), "none", 120.0),
        ("spark://h:1", (), "none", 40.0),
        ("spark://h:1", ("a:b:1",), "none", 340.0),
        ("spark://h:1", (), "venv", 340.0),
        ("yarn", (), "none", 660.0),
    ],
)
def test_the_wait_for_a_context_depends_on_who_gives_it(
    master: str | None, packages: tuple[str, ...], pack: str, limit: float
) -> None:
    spark = SimpleNamespace(master=master, packages=packages, archives=(), conf={})
    resolved: Any = SimpleNamespace(
        spec=SimpleNamespace(spark=spark, environment=SimpleNamespace(pack=pack), reservation_timeout=600)
    )
    assert start_timeout_s(resolved) == limit


def _await_event(submitted: Submission, kind: str) -> None:
    until = time.monotonic() + 30
    while kind not in submitted.run.events_path.read_text():
        assert time.monotonic() < until, (submitted.run.folder / "follower.log").read_text()
        time.sleep(0.02)  # the follower is no child of this process and tells nobody else
