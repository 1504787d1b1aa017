"""A small soak: the benchmark itself takes 200 clusters and 50 runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_a_few_clusters_and_runs_leave_nothing_that_grows(nothing_left: None, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--cycles", "10", "--every", "2", "--runs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--results", str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"
    assert "nothing grows" in done.stdout
    (document,) = tmp_path.glob("soak-*.json")
    tables = json.loads(document.read_text())["settings"]["tables"]
    judged = {entry["name"]: entry["verdict"] for entry in tables["clusters in one driver"]}
    # Memory takes more cycles to judge.
    assert judged["driver: threads"] == judged["driver: descriptors"] == judged["nodes: processes left"] == "flat"
    assert judged["driver: memory"] == "too few samples"
    assert {entry["name"] for entry in tables["runs of tfos train"]} >= {"processes left", "files left in TMPDIR"}
    (page,) = tmp_path.glob("soak-*.md")
    assert re.search(r"^\| driver: threads \|", page.read_text(), re.MULTILINE)
