"""Every template of `tfos init` runs to success as it is written (feed-loop: see the spark tier)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.templates import run_template

from tfos_cli.scaffold import TEMPLATES

if TYPE_CHECKING:
    from tests.conftest import RunLine

#: Template -> what it says when all is well, and the model that it leaves.
EXPECTED = {
    "feed-dataset": ("chief:0 ends with loss", "model"),
    "files": ("chief:0 ends with loss", "model"),
    "parallel": ("instance 1 on", None),
    "saved-model": ("1000 in, 1000 out", "model"),
    "feed-inference": ("1000 in, 1000 out", None),
    "pipeline": ("test error 0.0", "model"),
    "streaming": ("200 rows, last loss", "model"),
    "parameter-server": ("chief:0 is done after 80 steps", None),
}


def test_every_template_is_run_somewhere() -> None:
    assert set(EXPECTED) | {"feed-loop"} == set(TEMPLATES)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_template_runs_to_success(name: str, run_line: RunLine, tmp_path: Path, nothing_left: None) -> None:
    words, model = EXPECTED[name]
    assert words in run_template(name, run_line, tmp_path)
    assert model is None or (tmp_path / "job" / model / "saved_model.pb").is_file()
