"""What `tfos init` writes runs as it is; the other templates are run in the slow tier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.templates import run_template

if TYPE_CHECKING:
    from tests.conftest import RunLine


def test_the_template_with_a_loop_of_its_own_ends_early_and_well(run_line: RunLine, tmp_path: Path, nothing_left: None) -> None:
    said = run_template("feed-loop", run_line, tmp_path)
    assert "60 steps, last loss" in said
    assert "partitions not wanted" in said
    assert (tmp_path / "job" / "model" / "saved_model.pb").is_file()
