"""Templates of `tfos init`, run as their users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.commandline import Outcome
from testbed.processes import kill_group, start_child
from testbed.spark_home import link_spark_home

if TYPE_CHECKING:
    from tests.conftest import RunLine

__all__ = ("run_template",)

LONGEST_S = 150


def run_template(name: str, run_line: RunLine, folder: Path) -> str:
    """Write a template, run the commands that it names, and return what they said; each must succeed."""
    written: Outcome = run_line(f"tfos init {name} job")
    commands = written.stderr.splitlines()
    assert commands
    said = [_run(command, run_line, folder) for command in commands]
    assert not (folder / "job").joinpath("spark-warehouse").exists()
    return "".join(said)


def _run(command: str, run_line: RunLine, folder: Path) -> str:
    if command.startswith("tfos "):
        outcome = run_line(command, fresh=not command.startswith("tfos validate"), timeout_s=LONGEST_S)
        return outcome.stdout + outcome.stderr
    program, *words = command.split()
    assert program == "python", command
    # Spark's own local cluster writes into its folder.
    home = link_spark_home(folder / "spark-home")
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    child = start_child(
        [sys.executable, *words], environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, folder=folder, text=True
    )
    try:
        stdout, stderr = child.communicate(timeout=LONGEST_S)
    finally:
        kill_group(child)
    assert child.returncode == 0, f"{stdout}\n{stderr}"
    return f"{stdout}{stderr}"
