"""Completion: scripts for three shells, and what they are answered; bash itself loads its script and asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.commandline import tfos_command

from tfos_cli.commands import COMMANDS
from tfos_cli.completion import SHELLS
from tfos_cli.runs import RunStore
from tfos_cli.scaffold import TEMPLATES

if TYPE_CHECKING:
    from tests.conftest import RunLine


def ask(words: str, home: Path, shell: str = "bash") -> list[str]:
    """What a shell's script gets for a line whose last word is to be completed."""
    count = str(len(words.split(" ")) - 1)
    variables = {"COMP_WORDS": words, "COMP_CWORD": count, "_TFOS_COMPLETE": f"{shell}_complete", "TFOS_HOME": str(home)}
    done = subprocess.run(
        tfos_command(), env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False, cwd=home
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_asks_tfos(shell: str, run_line: RunLine) -> None:
    script = run_line(f"tfos completion {shell}").stdout
    assert f"_TFOS_COMPLETE={shell}_complete" in script
    assert "tfos" in script


def test_another_shell_is_refused_with_those_that_there_are(run_line: RunLine) -> None:
    assert all(shell in run_line("tfos completion csh", 2).stderr for shell in SHELLS)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_commands_are_completed(shell: str, tmp_path: Path) -> None:
    answered = set(ask("tfos ", tmp_path, shell)) if shell == "zsh" else {line.partition(",")[2] for line in ask("tfos ", tmp_path)}
    assert set(COMMANDS) <= answered
    if shell == "bash":
        assert ask("tfos canc", tmp_path) == ["plain,cancel"]


def test_options_of_the_command_are_completed(tmp_path: Path) -> None:
    assert ask("tfos train --dr", tmp_path) == ["plain,--dry-run"]


def test_templates_are_completed(tmp_path: Path) -> None:
    assert ask("tfos init ", tmp_path) == [f"plain,{name}" for name in TEMPLATES]


def test_ids_of_runs_are_completed_the_newest_first(tmp_path: Path) -> None:
    store = RunStore.of_environment({"TFOS_HOME": str(tmp_path)})
    ids = [store.create(name, master="local", now=now).id for name, now in (("a", 1.0e9), ("b", 1.1e9), ("ab", 1.2e9))]
    assert ask("tfos status a", tmp_path) == [f"plain,{ids[2]}", f"plain,{ids[0]}"]


def test_bash_loads_its_script_and_completes_with_it(tmp_path: Path, run_line: RunLine) -> None:
    (tmp_path / "script").write_text(run_line("tfos completion bash").stdout)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tfos"
    program.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in tfos_command()) + ' "$@"\n')
    program.chmod(0o755)
    # What bash does when a user types `tfos sch` and the tabulator key.
    asked = "source ./script; COMP_WORDS=(tfos sch) COMP_CWORD=1; _tfos_completion tfos; echo ${COMPREPLY[@]}"
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environment
    )
    assert (done.stdout.strip(), done.stderr) == ("schema", "")
