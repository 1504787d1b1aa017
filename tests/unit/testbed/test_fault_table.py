"""The table of faults: what it looks like, and what becomes of rows that were not measured again."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.fault_table import NONE_LEFT, Fault, FaultRow, FaultTable


def row(fault: Fault, mode: str = "spark", noticed_s: float | None = 0.25, **fields: str) -> FaultRow:
    values = {"message": "worker:1 | failed:\nx", "first_failure": "worker:1 on h", "leftovers": NONE_LEFT} | fields
    return FaultRow(fault=fault, mode=mode, noticed_s=noticed_s, ended_s=2.0, exit_code=1, **values)


def test_a_row_is_a_line_with_its_seconds_and_its_deadline() -> None:
    table = FaultTable()
    table.add(row(Fault.HANG, deadline="after feed_timeout of 3 s"))
    table.add(row(Fault.FLOOD, noticed_s=None))
    lines = table.markdown().splitlines()
    assert lines[2] == (
        r"| hang in map_fun | spark | 0.2 s (after feed_timeout of 3 s) | 2.0 s | 1 | worker:1 \| failed: x | none |"
    )
    assert "| - |" in lines[3]


def test_a_run_of_some_faults_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    first = FaultTable(tmp_path)
    for mode in ("spark", "tensorflow"):
        first.add(row(Fault.HANG, mode))
    second = FaultTable()
    second.add(row(Fault.HANG, "spark", 4.0))
    second.add(row(Fault.SIGNAL))
    second.skipped[Fault.DISK] = "mounting needs root"
    second.write(tmp_path)
    data = json.loads((tmp_path / "faults.json").read_text())
    assert [(entry["fault"], entry["mode"], entry["noticed_s"]) for entry in data["rows"]] == [
        (Fault.SIGNAL, "spark", 0.25),
        (Fault.HANG, "spark", 4.0),
        (Fault.HANG, "tensorflow", 0.25),
    ]
    text = (tmp_path / "faults.md").read_text()
    assert text.count("| hang in map_fun |") == 2
    assert "Not run: disk full in the executor's folder: mounting needs root" in text


def test_a_fault_that_is_measured_again_has_one_row_whichever_was_first(tmp_path: Path) -> None:
    first = FaultTable(tmp_path)
    first.add(row(Fault.HANG))
    second = FaultTable(tmp_path)
    second.add(row(Fault.SIGNAL))
    second.add(row(Fault.HANG, noticed_s=4.0))
    rows = json.loads((tmp_path / "faults.json").read_text())["rows"]
    assert [(entry["fault"], entry["noticed_s"]) for entry in rows] == [(Fault.SIGNAL, 0.25), (Fault.HANG, 4.0)]
