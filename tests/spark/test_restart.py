"""Jobs that are started again: a lost executor, and the example of docs/restart.md. Other faults are in the slow tier."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import nodes
from testbed.commandline import TfosProcess
from testbed.faults import executor_jvm
from testbed.processes import kill_all

from tfos_core import launch, running

if TYPE_CHECKING:
    from pyspark import SparkContext

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_executor_costs_an_epoch_and_not_the_job(
    nothing_left: None, tfos_process: Callable[..., TfosProcess], tmp_path: Path
) -> None:
    settings = {"export_dir": tmp_path / "model", "checkpoint_dir": tmp_path / "checkpoints"}
    sets = [part for name, value in settings.items() for part in ("--set", f"args.{name}={value}")]
    spec = ROOT / "jobspecs" / "restart.yaml"
    run = tfos_process(["tfos", "train", str(spec), "--json", "--set", "num_epochs=5", *sets])
    worker = run.wait_for_event("node_registered", 120, where=lambda event: event["node"] == "worker:0")
    run.wait_for_event("feed_finished", 120, where=lambda event: event["epoch"] == 1)
    kill_all([executor_jvm(worker["pid"])])
    result = run.wait(240, exit_code=0).events[-1]
    assert (result["event"], result["status"], result["first_failure"]) == ("result", "success", None)
    (restart,) = result["restarts"]
    assert (restart["number"], restart["node"]) == (1, "worker:0")
    assert "the executor of worker:0 died" in restart["error"]
    # The first epoch was over when the second was fed, and so was its checkpoint: it is not trained on again.
    assert restart["first_epoch"] >= 1
    assert result["rows_fed"] < 9 * 1433
    (said,) = {float(found) for log in (tmp_path / "tfos-home").rglob("chief-0.log") for found in accuracies(log)}
    assert said >= 0.9
    assert (tmp_path / "model" / "saved_model.pb").is_file()
    assert [path.name for path in next((tmp_path / "checkpoints").iterdir()).iterdir()]


def accuracies(log: Path) -> list[str]:
    return re.findall(r"test accuracy ([0-9.]+)", log.read_text(encoding="utf-8"))


def test_a_whole_job_in_one_call_is_started_again(
    sc: SparkContext, nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []

    def noting(*args: Any, **settings: Any) -> Any:
        configs.append(launch.new_cluster_config(*args, **settings))
        return configs[-1]

    monkeypatch.setattr(running, "new_cluster_config", noting)
    page = (ROOT / "docs" / "restart.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "run_job" in block)
    names: dict[str, Any] = {"sc": sc, "main_fun": nodes.die_once, "args": {"folder": str(tmp_path)}}
    exec(example, names | {"rows": sc.parallelize(range(400), 4)}, names)
    report, restarts = names["report"], names["restarts"]
    assert [(restart.number, restart.node) for restart in restarts] == [(1, "worker:1")]
    assert "signal 9" in restarts[0].error
    # What belonged to the first cluster opens nothing of the second, and nodes that it left behind would not be fed.
    assert len({config.generation for config in configs}) == len({config.secret for config in configs}) == 2
    assert len({config.run_id for config in configs}) == 1
    # Nothing was saved, so both epochs were fed to the nodes that began anew.
    found = nodes.notes(tmp_path)
    assert report.rows == 800 == sum(entry["rows"] for entries in found.values() for entry in entries)
    assert {(entry["restart_count"], entry["first_epoch"]) for entries in found.values() for entry in entries} == {(1, 0)}
