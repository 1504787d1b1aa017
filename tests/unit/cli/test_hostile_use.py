"""The command line in the hands of somebody clumsy or hostile: whatever happens, a sentence and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import RunLine
from testbed.commandline import run_here
from testbed.odd_specs import OddSpecs

from tfos_cli.runs import RunStore
from tfos_cli.ui.errors import harmless

SPEC = "name: d\nentrypoint: a.py:f\nnum_executors: 1\ninput_mode: tensorflow\n"


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a line of sh, where $tfos is the command."""
    words = {"tfos": f"{sys.executable} -m tfos_cli", "TFOS_HOME": str(folder / "home"), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=os.environ | words | environment, capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("def f(args, ctx): pass\n")
    (tmp_path / "job.yaml").write_text(SPEC)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$tfos validate job.yaml >&-", 0),
        ("$tfos runs --json <&- >&- 2>&-", 0),
        ("$tfos nonsense >&- 2>&-", 2),
        ("$tfos validate nowhere.yaml --json >&-", 2),
    ],
)
def test_closed_streams_change_nothing_but_what_is_read(job: Path, line: str, code: int) -> None:
    exit_code, _, errors = shell(line, job)
    assert exit_code == code
    assert "Traceback" not in errors
    assert "AttributeError" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$tfos validate job.yaml >/dev/full", 3),
        ("$tfos validate job.yaml --json >/dev/full", 3),
        ("$tfos nonsense 2>/dev/full", 2),
        ("$tfos nonsense --json >/dev/full 2>/dev/full", 2),
    ],
)
def test_a_full_disk_behind_a_stream_is_an_exit_code(job: Path, line: str, code: int) -> None:
    exit_code, _, errors = shell(line, job)
    assert exit_code == code
    assert "Traceback" not in errors
    assert ("No space left" in errors) is (code == 3)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_that_the_terminal_can_not_show_are_shown_with_escapes(job: Path, encoding: str) -> None:
    name = os.fsdecode(b"bad\xff\xc3\xb6.yaml")
    (job / name).write_text(SPEC + "no_such_key_ü: 1\n")
    (job / "job.yaml").write_text(SPEC + "ü: 1\n")
    for file in ("bad*.yaml", "job.yaml"):
        exit_code, output, errors = shell(
            f"$tfos validate {file} | cat; $tfos train {file} --dry-run", job, PYTHONIOENCODING=encoding
        )
        assert exit_code == 2
        assert "unknown key" in output
        assert "Error:" not in output + errors


def test_a_home_of_nobody_is_a_plain_name(job: Path, run_line: RunLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOS_HOME", "~nobody-of-this-name/x")
    assert "no runs in" in run_line("tfos runs").stdout + run_line("tfos runs").stderr
    run_line("tfos validate job.yaml")
    files = "spark: {files: ['~nobody-of-this-name/x'], master: 'spark://h:1'}\n"
    (job / "job.yaml").write_text(SPEC + files + "data: {path: '~nobody-of-this-name/x.csv'}\n")
    assert "there is no file" in run_line("tfos train job.yaml --dry-run", 2).stderr


@pytest.mark.parametrize("run_id", ["", "/", "../..", "a/../b", "d-20260101-000000-0000/../..", "\x00", "é" * 300, "*", "-"])
@pytest.mark.parametrize("verb", ["status", "logs", "cancel", "report", "stop-streaming"])
def test_a_run_id_names_a_run_and_no_path(job: Path, run_line: RunLine, verb: str, run_id: str) -> None:
    outcome = run_line(["tfos", verb, "--", run_id], 2)
    assert "there is no run" in outcome.stderr


def test_a_secret_file_that_never_ends_is_refused(run_line: RunLine) -> None:
    outcome = run_line("tfos stop-streaming h 99 --secret-file /dev/zero", 2)
    assert "holds more than 4096 bytes" in outcome.stderr


def test_a_host_that_can_not_be_one_is_unreachable(job: Path, run_line: RunLine) -> None:
    (job / "secret").write_text("ab" * 32)
    outcome = run_line("tfos stop-streaming a..b 99 --secret-file secret --execute", 5)
    assert "'a..b' is no name of a host" in outcome.stderr


def test_a_run_that_can_not_be_recorded_leaves_no_folder(job: Path, run_line: RunLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfos_cli.runs.write_status", full)
    outcome = run_line("tfos train job.yaml", 2)
    assert "can not be recorded" in outcome.stderr
    assert list((job / "tfos-home" / "runs").iterdir()) == []


@pytest.mark.parametrize("damage", ["{", "[]", "null", '{"v":1}', "\udcff", "[" * 100_000, ""])
def test_damaged_records_of_runs_are_told_and_hide_no_other(job: Path, run_line: RunLine, damage: str) -> None:
    run_id = "d-20260101-000000-0000"
    folder = job / "tfos-home" / "runs" / run_id
    folder.mkdir(parents=True)
    for name in ("status.json", "plan.json", "command.json", "events.jsonl", "spec.resolved.yaml", "env-check.json"):
        (folder / name).write_bytes(damage.encode("utf-8", "surrogateescape"))
    run_line("tfos runs")
    run_line("tfos runs --json")
    for line in (f"tfos status {run_id}", f"tfos cancel {run_id}", f"tfos stop-streaming {run_id}"):
        assert "can not be read" in run_line(line, 2).stderr or "not a streaming job" in run_line(line, 2).stderr
    run_line(f"tfos report {run_id}")


@pytest.mark.parametrize("line", ["validate job.yaml", "train job.yaml --dry-run"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_secrets_are_in_nothing_that_is_shown(
    job: Path, run_line: RunLine, monkeypatch: pytest.MonkeyPatch, line: str, form: str
) -> None:
    monkeypatch.setenv("MY_SECRET", "hidden-one")
    (job / "job.yaml").write_text(
        """\
name: d
entrypoint: a.py:f
num_executors: 1
args: {password: hidden-two, db: "jdbc:postgresql://u:hidden-three@h/d"}
data: {path: "s3a://key:hidden-four@b/x.csv", options: {password: hidden-five, url: "https://u:hidden-six@h"}}
environment: {secrets: [MY_SECRET], vars: {API_TOKEN: hidden-seven, URL: "https://u:hidden-eight@h"}}
spark:
  master: spark://h:7077
  jars: ["https://u:hidden-nine@h/x.jar"]
  conf: {spark.ssl.keyPassword: hidden-ten, spark.hadoop.fs.s3a.secret.key: hidden-eleven, spark.x: "http://u:hidden-twelve@h"}
"""
    )
    outcome = run_line(f"tfos {line} {form}")
    assert "hidden-" not in outcome.stdout + outcome.stderr


def test_an_error_shows_no_password_of_a_url(job: Path, run_line: RunLine) -> None:
    (job / "job.yaml").write_text("name: d\nentrypoint: a.py:f\nnum_executors: 1\ndata: {path: 's3a://key:hidden-one@b/x'}\n")
    for line, code in (
        ("validate job.yaml", 2),
        ("train job.yaml --dry-run", 2),
        ("train job.yaml --set num_ps=s3://u:hidden-two@h", 2),
    ):
        outcome = run_line(f"tfos {line}", code)
        assert "hidden-" not in outcome.stdout + outcome.stderr


def test_every_jobspec_and_damaged_ones_end_in_findings(tmp_path: Path) -> None:
    jobspecs = Path(__file__).parents[3] / "jobspecs"
    odd = OddSpecs(random.Random(3), jobspecs)
    for _ in range(150):
        assert odd.try_one(tmp_path, run_here) == ""
    for path in sorted(jobspecs.glob("*.yaml")):
        environment = {"PATH": os.environ["PATH"], "TFOS_HOME": str(tmp_path / "home")}
        assert run_here(["tfos", "validate", str(path)], environment=environment).exit_code in (0, 2)


GOOD_STATUS = {"v": 1, "run_id": "d-20260101-000000-0000", "name": "d", "state": "finished", "started": 1.0, "master": "x"}


@pytest.mark.parametrize(
    "change",
    [
        {"name": []}, {"master": {}}, {"started": "x"}, {"started": 1e300}, {"ended": float("nan")}, {"exit_code": "z"},
        {"rows_fed": None}, {"timings": []}, {"first_failure": 1}, {"driver": {"pid": "x", "start_time": 0}},
        {"driver": {"pid": -1, "start_time": 0}}, {"exports": 5}, {"restarts": None}, {"state": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_status_of_odd_values_is_told(job: Path, run_line: RunLine, change: dict[str, object]) -> None:
    folder = job / "tfos-home" / "runs" / "d-20260101-000000-0000"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(GOOD_STATUS | change))
    assert "can not be read" in run_line("tfos runs").stderr
    assert "can not be read" in run_line("tfos status d", 2).stderr


def test_a_status_that_is_no_file_is_not_waited_for(job: Path, run_line: RunLine) -> None:
    folder = job / "tfos-home" / "runs" / "d-20260101-000000-0000"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "status.json")
    assert "not a plain file" in run_line("tfos runs").stderr
    (folder / "status.json").unlink()
    (folder / "status.json").symlink_to("/dev/zero")
    assert "not a plain file" in run_line("tfos status d", 2).stderr


def test_what_others_said_does_not_steer_the_terminal(job: Path, run_line: RunLine) -> None:
    outcome = run_line(["tfos", "status", "\x1b]0;title\x07\x1b[2J"], 2)
    assert "\x1b" not in outcome.stderr
    assert harmless("a\x1b[2J\n\tb\x9b") == "a\\x1b[2J\n\tb\\x9b"


def test_runs_that_begin_in_the_same_moment_have_folders_of_their_own(job: Path) -> None:
    store = RunStore.of_environment({"TFOS_HOME": str(job / "home")})
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: store.create("d", master="x", now=1.0), range(40)))
    assert len({run.id for run in runs}) == 40
    assert all((run.folder / "status.json").is_file() for run in runs)
