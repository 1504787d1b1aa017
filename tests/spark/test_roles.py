"""Every role on real executors: what nodes know of each other, who is waited for, and the jobs that we ship, trained."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import nodes
from testbed.clusters import Recorder, started_cluster
from testbed.waiting import poll_until

from tfos_core import slot_watch
from tfos_core.errors import ConfigError, NodeFailedError
from tfos_core.processes import is_same_process, start_time

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
LONGEST_S = 150
LOSS = re.compile(r"(chief:0|worker:0) \|.*\bloss:? ([0-9.]+)")


@pytest.fixture
def train(run_line: RunLine) -> Any:
    """Runs a spec that we ship, and returns all that it says, the lines of every node included."""

    def run(spec: str, *settings: str) -> str:
        line = ["tfos", "train", "-v", str(ROOT / "jobspecs" / f"{spec}.yaml")]
        for setting in settings:
            line += ["--set", setting]
        outcome = run_line(line, fresh=True, timeout_s=LONGEST_S)
        return outcome.stdout + outcome.stderr

    return run


def check_training(said: str, accuracy: float, node: str = "chief:0") -> None:
    """The loss has fallen to less than half, and the model is good on images that it has not seen."""
    losses = [float(loss) for name, loss in LOSS.findall(said) if name == node]
    assert losses, said
    assert losses[-1] < losses[0] / 2, losses
    found = re.findall(r"test accuracy ([0-9.]+)", said)
    assert found, said
    assert float(found[-1]) >= accuracy, found


# ---- the jobs that we ship ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_nodes_train_with_keras_3_and_a_loop_of_their_own(train: Any, nothing_left: None, tmp_path: Path) -> None:
    said = train("keras3_allreduce", "num_epochs=6", f"args.export_dir={tmp_path / 'model'}")
    check_training(said, 0.93)
    # Each node has half of the 1433 rows and puts 32 of them into a step of 64; both take part in every step.
    assert set(re.findall(r"epoch \d: (\d+) steps", said)) == {"24"}
    assert (tmp_path / "model" / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    "on_driver", [pytest.param(False, id="on_executors"), pytest.param(True, id="on_the_driver", marks=pytest.mark.slow)]
)
def test_a_coordinator_trains_with_parameter_servers(on_driver: bool, train: Any, nothing_left: None) -> None:
    said = train("parameter_server", f"driver_ps_nodes={str(on_driver).lower()}")
    check_training(said, 0.93)
    assert re.findall(r"chief:0 \| Epoch (\d)/5", said) == list("12345")
    assert len(re.findall(r"chief:0 \| 20/20 ", said)) == 5
    # With the ps on the driver, its executor is a second worker's.
    assert ("worker:1 finished" in said) == on_driver
    assert "ps:0 finished" in said


@pytest.mark.slow
def test_workers_train_at_their_own_pace_fed_by_spark(train: Any, nothing_left: None) -> None:
    said = train("async_parameter_server", "args.print_every=20")
    check_training(said, 0.9)
    done = {node: int(steps) for node, steps in re.findall(r"\| (chief:0|worker:0) is done after (\d+) steps", said)}
    # 1433 rows six times over, in batches of 32; the last one of each node may be short.
    assert set(done) == {"chief:0", "worker:0"}
    assert 6 * 1433 / 32 <= sum(done.values()) <= 6 * 1433 / 32 + 2 * 6, done
    assert "rows fed   8598" in said


@pytest.mark.slow
def test_an_evaluator_judges_the_checkpoints_of_the_chief(train: Any, nothing_left: None, tmp_path: Path) -> None:
    said = train("evaluator", f"args.checkpoints={tmp_path / 'checkpoints'}")
    check_training(said, 0.9)
    judged = [int(epoch) for epoch in re.findall(r"evaluator:0 \| epoch (\d): test accuracy", said)]
    assert judged == sorted(set(judged))
    assert judged[-1] == 5, "the last checkpoint is judged in the time that it has after the training"
    (run,) = (tmp_path / "checkpoints").iterdir()
    assert len(list(run.glob("ckpt-*.index"))) == 5


# ---- what nodes know of each other -------------------------------------------------------------------------------------------


@pytest.fixture
def shown(sc: SparkContext, nothing_left: None, tmp_path: Path) -> Iterator[tuple[dict[str, Any], Recorder]]:
    """What a ps on the driver, a chief and an evaluator note of a cluster of three nodes, and the cluster's events."""
    events = Recorder()
    args = {"folder": str(tmp_path), "nodes": 3}
    roles = {"num_ps": 1, "driver_ps_nodes": True, "master_node": "chief", "eval_node": True}
    with started_cluster(sc, nodes.show_cluster, args, 3, spark_mode=False, on_event=events, **roles) as running:
        running.shutdown(timeout=60)
    yield {node: entries[0] for node, entries in nodes.notes(tmp_path).items()}, events


def test_every_role_gets_its_place_and_the_ps_runs_beside_the_driver(
    shown: tuple[dict[str, Any], Recorder], sc: SparkContext
) -> None:
    noted, events = shown
    addresses = {node: [address] for node, address in events.wait_for("cluster_ready").addresses.items()}
    training = {"chief": addresses["chief:0"], "ps": addresses["ps:0"]}
    assert set(noted) == {"ps:0", "chief:0", "evaluator:0"}
    for node, entry in noted.items():
        role, _, index = node.partition(":")
        seen = training | ({"evaluator": addresses["evaluator:0"]} if role == "evaluator" else {})
        assert entry["tf_config"]["cluster"] == entry["cluster_spec"] == seen
        assert entry["tf_config"]["task"] == {"type": role, "index": int(index)}
        assert entry["num_workers"] == 1
    # The ps has a folder of its own in the application's; the others have those of their executors.
    assert Path(noted["ps:0"]["folder"]).parent == Path(sc._temp_dir)
    assert len({entry["folder"] for entry in noted.values()}) == 3
    # Serving nodes are stopped when the chief is done, which is a good end for them.
    assert {event.node for event in events.all("node_finished")} == set(noted)
    assert events.all("node_failed") == []


def test_a_ps_on_the_driver_ends_with_the_driver(nothing_left: None, tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(
        "import sys, time\n"
        "from testbed import nodes\n"
        "from testbed.clusters import started_cluster\n"
        "from testbed.spark_context import start_context\n"
        "with start_context('local-cluster[1,1,1024]') as sc, started_cluster(\n"
        f"    sc, nodes.serve_or_train, {{'folder': {str(tmp_path)!r}}}, 2, spark_mode=False, num_ps=1, driver_ps_nodes=True\n"
        "):\n"
        "    time.sleep(120)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen([sys.executable, str(program)], env=environment, start_new_session=True)
    try:
        (entry,) = poll_until(lambda: nodes.notes(tmp_path).get("ps:0", []), 60, what="the ps runs")
        started = start_time(entry["pid"])
        driver.kill()
        killed = time.monotonic()
        poll_until(lambda: not is_same_process(entry["pid"], started), 10, what="the ps has ended")
        assert time.monotonic() - killed < 5
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(10)


def test_a_ps_on_the_driver_that_fails_is_named_with_its_traceback(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    args = {"folder": str(tmp_path), "failing": [0]}
    with (
        pytest.raises(NodeFailedError, match=r"ps:0 .*no column 'label' on ps:0") as failure,
        started_cluster(sc, nodes.fail, args, 2, spark_mode=False, num_ps=1, driver_ps_nodes=True) as running,
    ):
        running.shutdown(timeout=60)
    assert "raise ValueError" in failure.value.remote_traceback


def test_ps_on_the_driver_are_refused_where_spark_feeds(sc: SparkContext) -> None:
    with (
        pytest.raises(ConfigError, match=r"driver_ps_nodes needs InputMode\.TENSORFLOW"),
        started_cluster(sc, nodes.consume, {}, 2, num_ps=1, driver_ps_nodes=True),
    ):
        pass


def test_the_python_example_of_the_documentation_runs(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "roles.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example.replace("/shared/", f"{tmp_path}/"), {"sc": sc, "__name__": "__main__"})
    assert (tmp_path / "result.txt").read_text() == "20 steps"


# ---- who is waited for -------------------------------------------------------------------------------------------------------


def test_a_cluster_of_servers_only_is_stopped_and_says_that_nobody_trains(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    events = Recorder()
    with started_cluster(sc, nodes.join_own_server, {"folder": str(tmp_path)}, spark_mode=False, on_event=events) as running:
        running.shutdown(timeout=60)
    assert [event.id for event in events.all("warning")] == ["nobody-trains"]
    assert events.all("node_failed") == []
    assert set(nodes.notes(tmp_path)) == {"worker:0", "worker:1"}


def test_a_fed_worker_with_a_server_ends_when_its_function_returns(sc: SparkContext, nothing_left: None, tmp_path: Path) -> None:
    events = Recorder()
    args = {"folder": str(tmp_path)}
    with started_cluster(sc, nodes.serve_and_consume, args, num_ps=1, on_event=events) as running:
        report = running.train(sc.parallelize(range(300), 3), final=True)
        running.shutdown(timeout=60)
    assert report.rows == 300
    assert nodes.notes(tmp_path)["worker:0"][0]["rows"] == 300
    assert [event.node for event in events.all("node_finished")] == ["worker:0", "ps:0"]
    assert events.all("warning") == []


def test_a_job_that_waits_for_the_nodes_cores_is_told(
    sc: SparkContext, nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import InheritableThread

    monkeypatch.setattr(slot_watch, "LOOK_S", 0.2)
    monkeypatch.setattr(slot_watch, "WAITING_S", 1.0)
    events, counted = Recorder(), []
    with started_cluster(sc, nodes.stay, {"folder": str(tmp_path)}, spark_mode=False, on_event=events) as running:
        ours = stage_ids(sc)
        waiting = InheritableThread(target=lambda: counted.append(sc.parallelize(range(8), 2).count()), daemon=True)
        waiting.start()
        warning = events.wait_for("warning", 60)
        assert warning.id == "nodes-hold-all-slots"
        found = re.match(r"stage (\d+) of this application .* has waited for \d+ s", warning.message)
        assert found, warning.message
        assert int(found[1]) not in ours
        with pytest.raises(Exception, match="did not end within"):
            running.shutdown(timeout=1)
        waiting.join(60)
    assert counted == [8], "it runs as soon as the nodes are gone"


def stage_ids(sc: SparkContext) -> set[int]:
    stages = sc._jsc.sc().statusStore().activeStages()
    return {int(stages.apply(position).stageId()) for position in range(stages.size())}


def test_shipped_roles_are_shown_before_they_are_launched(run_line: RunLine) -> None:
    spec = str(ROOT / "jobspecs" / "parameter_server.yaml")
    shown = json.loads(run_line(["tfos", "train", spec, "--dry-run", "--json", "--set", "driver_ps_nodes=true"]).stdout)
    assert [(node["name"], node["on_driver"]) for node in shown["nodes"]] == [
        ("ps:0", True),
        ("chief:0", False),
        ("worker:0", False),
        ("worker:1", False),
    ]
    assert (shown["num_nodes"], shown["num_executors"]) == (4, 3)
    text = run_line(["tfos", "validate", spec, "--set", "driver_ps_nodes=true"]).stdout
    assert "4 (1 ps, 1 chief, 2 workers, ps on the driver)" in text
