"""`tfos report`: what is in the archive, and that none of many planted secrets is."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tfos_cli.bundle.scrub import Scrubber, secret_values
from tfos_cli.runs import Run, RunStore
from tfos_core import events
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import MASK, Redactor
from tfos_core.shim.status import RunState

if TYPE_CHECKING:
    from tests.conftest import RunLine

PLANTED = {
    "named": "plain-words-that-say-nothing",
    "variable": "v4riable-value",
    "argument": "argument-value-9",
    "option": "option-value-77",
    "url": "url-password-1",
    "bearer": "abcdef.ghijkl-123456",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_0123456789abcdefghij0123456789",
    "key": "MIIEpAIBAAKCAQEA0",
    "json": "json value with spaces",
    "failure": "in-the-error",
}


@pytest.fixture
def run(tfos_home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A failed run whose program, spec and variables were careless with every secret that there is."""
    monkeypatch.setenv("DATABASE", PLANTED["named"])
    run = RunStore(folder=tfos_home / "runs").create("digits", master="yarn", now=2_000_000_000.0)
    plan = {"environment": {"API_TOKEN": PLANTED["variable"]}, "secrets": ["DATABASE"], "args": {"password": PLANTED["argument"]}}
    run.plan_path.write_text(json.dumps(plan))
    run.spec_path.write_text("name: digits\nenvironment:\n  secrets: [DATABASE]\n  vars: {API_TOKEN: <hidden>}   # file:7\n")
    argv = ["spark-submit", "--token", PLANTED["option"], f"hdfs://me:{PLANTED['url']}@host/x", f"-Dpassword={PLANTED['argument']}"]
    run.command_path.write_text(
        json.dumps({"argv": argv, "environment": {"API_TOKEN": "<hidden>"}, "secret_properties": ["a.password"]})
    )
    with RecordWriter(run.folder, Redactor(())) as record:
        record.event(events.Warned(id="x", message=f"connected with Authorization: Bearer {PLANTED['bearer']}"))
        record.output("chief:0", [f"line {number}" for number in range(1000)])
        record.output("chief:0", [f"using {PLANTED['named']}", f"vars are {{'X': '{PLANTED['variable']}'}}", PLANTED["aws"]])
        record.output("worker:0", ["-----BEGIN PRIVATE KEY-----", PLANTED["key"], "-----END PRIVATE KEY-----", "the last line"])
        record.update(state=RunState.FINISHED, status="failed", exit_code=1, error=f"no login with secret={PLANTED['failure']}")
    log = [
        f"INFO clone https://x:{PLANTED['github']}@github.com/a/b",
        f'{{"client_secret": "{PLANTED["json"]}"}}',
        "max_tokens: 128",
    ]
    run.driver_log.write_text("".join(f"{line}\n" for line in log))
    return run


def members_of(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {member.name: opened.extractfile(member).read().decode() for member in opened.getmembers()}  # type: ignore[union-attr]


def test_no_planted_secret_is_in_a_report(run: Run, run_line: RunLine, tmp_path: Path) -> None:
    outcome = run_line(f"tfos report {run.id}")
    (archive,) = tmp_path.glob("*.tar.gz")
    members = members_of(archive)
    leaked = [(kind, name) for kind, secret in PLANTED.items() for name, text in members.items() if secret in text]
    assert leaked == []
    assert not [secret for secret in PLANTED.values() if secret in outcome.stdout + outcome.stderr]
    assert archive.stat().st_mode & 0o777 == 0o600
    assert "max_tokens: 128" in members[f"tfos-report-{run.id}/driver.log"]


def test_a_report_has_all_that_is_known_of_a_run(run: Run, run_line: RunLine, tmp_path: Path) -> None:
    (run.folder / "env-check.json").write_text('{"checks": []}')
    assert run_line(f"tfos report {run.id}").stdout == f"tfos-report-{run.id}.tar.gz\n"
    found = members_of(tmp_path / f"tfos-report-{run.id}.tar.gz")
    members = {name.partition("/")[2]: text for name, text in found.items()}
    logs = {"driver.log", "nodes/chief-0.log", "nodes/worker-0.log"}
    documents = {
        "README.txt",
        "command.json",
        "env-check.json",
        "events.jsonl",
        "spec.resolved.yaml",
        "status.json",
        "versions.json",
    }
    assert set(members) == logs | documents
    assert all(name in members["README.txt"] for name in set(members) - {"README.txt"})
    assert json.loads(members["status.json"])["exit_code"] == 1
    assert json.loads(members["versions.json"])["packages"]["numpy"]
    assert [json.loads(line)["event"] for line in members["events.jsonl"].splitlines()] == ["warning"]
    assert yaml.safe_load(members["spec.resolved.yaml"])["environment"]["secrets"] == ["DATABASE"]
    assert members["nodes/worker-0.log"].endswith("the last line\n")


def test_only_the_last_lines_of_a_log_are_taken(run: Run, run_line: RunLine, tmp_path: Path) -> None:
    told = json.loads(run_line(f"tfos report {run.id} --lines 10 --output r.tgz --json").stdout)
    assert told["report"] == "r.tgz"
    assert told["secrets"] > len(PLANTED) - 2
    lines = members_of(tmp_path / "r.tgz")[f"tfos-report-{run.id}/nodes/chief-0.log"].splitlines()
    assert (len(lines), lines[0]) == (10, "line 993")


def test_a_file_that_is_there_is_replaced_with_force_only(run: Run, run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "r.tgz").write_text("mine")
    assert "r.tgz exists already" in run_line(f"tfos report {run.id} -o r.tgz", 2).stderr
    assert (tmp_path / "r.tgz").read_text() == "mine"
    run_line(f"tfos report {run.id} -o r.tgz --force")
    assert members_of(tmp_path / "r.tgz")
    assert "can not be written" in run_line(f"tfos report {run.id} -o nowhere/r.tgz", 2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.tgz", "tfos-home"]


def test_a_run_whose_record_is_damaged_or_has_just_begun_is_reported_too(run: Run, run_line: RunLine, tmp_path: Path) -> None:
    for path in (run.plan_path, run.spec_path, run.driver_log):
        path.unlink()
    (run.folder / "status.json").write_text("{half")
    run.command_path.write_bytes(b"\xff\xfe")
    run_line(f"tfos report {run.id} -o r.tgz")
    members = members_of(tmp_path / "r.tgz")
    assert members[f"tfos-report-{run.id}/status.json"] == "{half"
    assert f"tfos-report-{run.id}/driver.log" not in members


def test_an_unknown_run_is_a_usage_error(run_line: RunLine, tmp_path: Path) -> None:
    assert "there is no run 'nope'" in run_line("tfos report nope", 2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=abc123", f"password={MASK}"),
        ('"db_password": "a \\" b", "x": 1', f'"db_password": "{MASK}", "x": 1'),
        ("--auth-token xyz --next", f"--auth-token {MASK} --next"),
        ("'--token', 'abc'", f"'--token', '{MASK}'"),
        ('{\\"api_key\\": \\"zzz\\"}', f'{{\\"api_key\\": \\"{MASK}\\"}}'),
        ("s3://key:s3cr3t@bucket/a?b=1", f"s3://key:{MASK}@bucket/a?b=1"),
        ("http://host:8080/user@x", "http://host:8080/user@x"),
        ("max_tokens=128 tokens: 5", "max_tokens=128 tokens: 5"),
        ("a token was given", "a token was given"),
        ("secrets: [DB_PASSWORD, HF_TOKEN]", "secrets: [DB_PASSWORD, HF_TOKEN]"),
        ("password: <hidden>   # flag", "password: <hidden>   # flag"),
        ("Password:\n  next line", "Password:\n  next line"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out_of_text_and_nothing_else(text: str, clean: str) -> None:
    assert Scrubber(()).text(text) == clean
    assert Scrubber(()).text(clean) == clean


def test_values_under_telling_names_are_known_unless_they_are_ordinary_words() -> None:
    environ = {
        "TOKENIZERS_PARALLELISM": "false",
        "MY_TOKEN": "abcdefg",
        "PATH": "/usr/bin",
        "TOKEN_FILE": "/var/run/token",
        "N": "x-y-z-1",
    }
    document: Any = {"args": {"password": "letmein"}, "environment": {"secrets": ["N"], "vars": {"A_TOKEN": "1234567"}}}
    assert secret_values(document, environ=environ, names=["N", "MISSING"]) == {"abcdefg", "letmein", "x-y-z-1"}
