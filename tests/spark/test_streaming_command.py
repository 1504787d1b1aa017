"""A streaming job as its users run it: it trains on files that are dropped while it runs, and is stopped from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.commandline import TfosProcess
from testbed.standalone import StandaloneCluster, WorkerOptions

if TYPE_CHECKING:
    from tests.conftest import RunLine

LONGEST_S = 120


def drop(folder: Path, name: str, rows: int) -> None:
    """Put a file into the watched folder as a whole."""
    (folder.parent / name).write_text("".join(f"0.{row % 10},{1 + row % 10 / 5}\n" for row in range(rows)))
    (folder.parent / name).rename(folder / name)


def test_a_job_trains_on_what_is_dropped_until_it_is_stopped(
    nothing_left: None, run_line: RunLine, tfos_process: Callable[..., TfosProcess], tmp_path: Path, tfos_home: Path
) -> None:
    run_line("tfos init streaming job")
    for file in (tmp_path / "job" / "incoming").iterdir():
        file.unlink()
    with StandaloneCluster([WorkerOptions()]) as cluster:
        line = f"tfos train job/job.yaml --json --master {cluster.url} --set args.enough_rows=null --set stream.interval=0.5"
        process = tfos_process(line)
        process.wait_for_event("cluster_ready", LONGEST_S)
        run_id = process.wait_for_event("submitted")["run_id"]
        total = 0
        for number, rows in enumerate((50, 30)):
            drop(tmp_path / "job" / "incoming", f"new-{number}.csv", rows)
            total += rows
            process.wait_for_event("stream_progress", LONGEST_S, where=lambda event, total=total: event["rows_total"] == total)
        assert "would ask" in run_line(f"tfos stop-streaming {run_id}").stdout
        told = json.loads(run_line(f"tfos stop-streaming {run_id} --execute --json", fresh=True, timeout_s=LONGEST_S).stdout)
        assert told == {"target": f"run {run_id}", "executed": True, "batches": 2, "rows": 80}
        outcome = process.wait(LONGEST_S, exit_code=0)
    result = outcome.events[-1]
    assert (result["event"], result["status"], result["rows_fed"]) == ("result", "success", 80)
    assert (tmp_path / "job" / "model" / "saved_model.pb").is_file()
    record = tfos_home / "runs" / run_id
    assert "80 rows, last loss" in (record / "nodes" / "chief-0.log").read_text()
    assert not (record / "secret").exists()
    assert "had already ended: 2 batches with 80 rows" in run_line(f"tfos stop-streaming {run_id} --execute").stdout
