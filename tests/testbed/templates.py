"""Templates of `tfos init`, run as their users run them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.commandline import Outcome

if TYPE_CHECKING:
    from tests.conftest import RunLine

__all__ = ("run_template",)

LONGEST_S = 150


def run_template(name: str, run_line: RunLine, folder: Path) -> str:
    """Write a template, run the commands that it names, and return what they said; each must succeed."""
    written: Outcome = run_line(f"tfos init {name} job")
    commands = [line for line in written.stderr.splitlines() if line.startswith("tfos ")]
    assert commands, written.stderr
    said = [run_line(command, fresh=not command.startswith("tfos validate"), timeout_s=LONGEST_S) for command in commands]
    assert not (folder / "job").joinpath("spark-warehouse").exists()
    return "".join(outcome.stdout + outcome.stderr for outcome in said)
