"""The digits, converted to TFRecords first and trained from them, fed by Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "jobspecs"
LONGEST_S = 240


@pytest.mark.timeout(600)
def test_the_digits_are_converted_trained_from_and_judged(run_line: RunLine, tmp_path: Path) -> None:
    records = tmp_path / "records"
    convert = [sys.executable, str(SPECS / "apps" / "digits_convert.py"), str(SPECS / "data" / "digits"), str(records)]
    said = subprocess.run(convert, check=True, capture_output=True, text=True, timeout=LONGEST_S).stdout
    assert "1433 images" in said and "364 images" in said
    values = {
        "input_mode": "spark",
        "data.path": records / "train",
        "args.test_data": records / "test",
        "args.export_dir": tmp_path / "model",
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    outcome = run_line(["tfos", "train", str(SPECS / "digits_tfrecord.yaml"), *words], fresh=True, timeout_s=LONGEST_S)
    (correct,) = map(int, re.findall(r"test accuracy [0-9.]+ \((\d+) of 364 images\)", outcome.stdout))
    assert correct >= 0.95 * 364
    assert re.search(r"rows fed +17,?196\b", outcome.stdout), outcome.stdout
    assert (tmp_path / "model" / "saved_model.pb").is_file()

    values = {
        "infer.export_dir": tmp_path / "model",
        "infer.keep": "[label]",
        "infer.output.path": tmp_path / "predictions",
        "data.path": records / "test",
        "data.columns": "null",
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    run_line(["tfos", "infer", str(SPECS / "digits_tfrecord.yaml"), *words], fresh=True, timeout_s=LONGEST_S)
    table = pq.read_table(tmp_path / "predictions")
    (name,) = set(table.column_names) - {"label"}
    best = [max(range(10), key=row.__getitem__) for row in table.column(name).to_pylist()]
    labels = table.column("label").to_pylist()
    assert len(labels) == 364
    assert sum(a == b for a, b in zip(best, labels, strict=True)) == correct
