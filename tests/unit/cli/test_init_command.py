"""`tfos init`: every template is whole, valid and clean; nothing of the user's is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfos_cli.scaffold import TEMPLATES
from tfos_cli.spec.loader import load_spec

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[3]
FOLDERS = sorted(path.name for path in (ROOT / "tfos_cli" / "templates").iterdir() if path.is_dir())


def specs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def test_every_folder_of_templates_is_offered_with_a_summary(run_line: RunLine) -> None:
    shown = run_line("tfos init").stdout.splitlines()
    assert sorted(line.split()[0] for line in shown) == FOLDERS
    listed = json.loads(run_line("tfos init --json").stdout)
    assert [entry["template"] for entry in listed] == list(TEMPLATES)
    assert all(entry["summary"].endswith(".") for entry in listed)


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_writes_is_what_it_says_it_wrote(name: str, run_line: RunLine, tmp_path: Path) -> None:
    outcome = run_line(f"tfos init {name} here/job")
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(outcome.stdout.splitlines()) == written
    assert any(path.endswith(".py") for path in written)
    assert not any(path.endswith(".txt") for path in written)
    for spec in specs_of(tmp_path / "here" / "job"):
        assert f"here/job/{spec.name}" in outcome.stderr, "no command for a spec that was written"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_spec_of_a_template_is_free_of_findings_and_says_what_it_is(name: str, run_line: RunLine, tmp_path: Path) -> None:
    run_line(f"tfos init {name}")
    specs = specs_of(tmp_path)
    assert specs
    for spec in specs:
        run_line(f"tfos validate --strict {spec.name}")
        assert load_spec(spec).spec.name.startswith(name)
        assert spec.read_text(encoding="utf-8").startswith("# ")


def test_the_programs_of_templates_are_clean(run_line: RunLine, tmp_path: Path) -> None:
    for name in TEMPLATES:
        run_line(f"tfos init {name} {name}")
    for arguments in (["check", "--extend-ignore", "T201"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_imports_tensorflow_and_spark_where_they_are_used_only(name: str) -> None:
    for path, content in TEMPLATES[name].files().items():
        if path.endswith(".py"):
            top = [line for line in content.decode().splitlines() if line.startswith(("import ", "from "))]
            assert not [line for line in top if "tensorflow" in line or "pyspark" in line], path


def test_json_names_the_files_and_the_next_commands(run_line: RunLine) -> None:
    told = json.loads(run_line("tfos init parallel job --json").stdout)
    assert told == {
        "template": "parallel",
        "files": ["job/app.py", "job/job.yaml"],
        "next": ["tfos validate job/job.yaml", "tfos train job/job.yaml"],
    }


def test_files_that_are_there_are_left_alone_without_force(run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    outcome = run_line("tfos init parallel", 2)
    assert "app.py exists already" in outcome.stderr
    assert "--force" in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"], "a part was written"
    assert (tmp_path / "app.py").read_text() == "mine"
    (tmp_path / "other.txt").write_text("mine")
    run_line("tfos init parallel --force")
    assert (tmp_path / "app.py").read_text() != "mine"
    assert (tmp_path / "other.txt").read_text() == "mine"


def test_a_dangling_link_is_in_the_way_too(run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").symlink_to(tmp_path / "nowhere")
    assert "job.yaml exists already" in run_line("tfos init parallel", 2).stderr


def test_an_unknown_template_is_answered_with_a_close_one(run_line: RunLine, tmp_path: Path) -> None:
    stderr = run_line("tfos init paralel", 2).stderr
    assert "there is no template 'paralel'" in stderr
    assert "Did you mean parallel?" in stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_written_is_named(run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in run_line("tfos init parallel file/below", 2).stderr
