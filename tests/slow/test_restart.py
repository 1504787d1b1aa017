"""Faults in the middle of a digits run in both input modes: the job ends by itself, with the accuracy that it has without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.commandline import TfosProcess
from testbed.faults import executor_jvm, tensorflow_process
from testbed.processes import Process, kill_all, read_process
from testbed.standalone import StandaloneCluster

from tfos_core.exit_codes import ExitCode

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
EPOCHS = 5
TEST_IMAGES = 364

Start = Callable[..., TfosProcess]


def supervisor(pid: int) -> Process:
    found = read_process(pid)
    assert found is not None
    return found


FAULTS: dict[str, Callable[[int], Process]] = {
    "process": tensorflow_process,
    "supervisor": supervisor,
    "executor": executor_jvm,
}


def start(run: Start, folder: Path, *more: str, mode: str = "spark") -> TfosProcess:
    settings = [f"args.export_dir={folder / 'model'}", f"args.checkpoint_dir={folder / 'checkpoints'}", f"num_epochs={EPOCHS}"]
    spec = ROOT / "jobspecs" / "restart.yaml"
    if mode == "tensorflow":
        spec = ROOT / "jobspecs" / "digits_tensorflow.yaml"
        settings.append("restart.max_restarts=3")
    sets = [part for setting in settings for part in ("--set", setting)]
    return run(["tfos", "train", str(spec), "--json", *sets, *more])


def accuracy(folder: Path) -> float:
    """The one that the run says; a run says one."""
    logs = [log.read_text(encoding="utf-8") for log in (folder / "tfos-home").rglob("chief-0.log")]
    (found,) = re.findall(r"test accuracy ([0-9.]+)", "".join(logs))
    return float(found)


@pytest.fixture
def standalone() -> Iterator[StandaloneCluster]:
    """A Master and two Workers with one core each."""
    with StandaloneCluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def without_fault(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Start, Path], float]:
    """The accuracy of a run in peace; the first test that asks runs it."""
    found: list[float] = []

    def ask(run: Start, folder: Path) -> float:
        if not found:
            assert start(run, folder).wait(300, exit_code=0).events[-1]["restarts"] == []
            found.append(accuracy(folder))
            for log in (folder / "tfos-home").rglob("chief-0.log"):
                log.unlink()
        return found[0]

    return ask


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_in_the_middle_costs_a_restart_and_nothing_else(
    nothing_left: None, tfos_process: Start, tmp_path: Path, without_fault: Callable[[Start, Path], float], fault: str
) -> None:
    expected = without_fault(tfos_process, tmp_path)
    run = start(tfos_process, tmp_path)
    worker = run.wait_for_event("node_registered", 120, where=lambda event: event["node"] == "worker:0")
    run.wait_for_event("feed_finished", 180, where=lambda event: event["epoch"] == 1)
    kill_all([FAULTS[fault](worker["pid"])])
    result = run.wait(300, exit_code=0).events[-1]
    (restart,) = result["restarts"]
    assert (result["status"], restart["node"]) == ("success", "worker:0")
    assert restart["first_epoch"] >= 1
    # Feeding goes on with the first epoch that is in no checkpoint, and with all that follow.
    kinds = [event["event"] for event in run.events]
    after = run.events[kinds.index("restarting") :]
    fed = [event["epoch"] for event in after if event["event"] == "feed_finished"]
    assert fed == list(range(restart["first_epoch"], EPOCHS))
    # Runs of the same program differ by several images, with and without faults.
    assert abs(accuracy(tmp_path) - expected) < 15 / TEST_IMAGES


def test_nodes_that_read_for_themselves_are_started_again_too(nothing_left: None, tfos_process: Start, tmp_path: Path) -> None:
    run = start(tfos_process, tmp_path, mode="tensorflow")
    worker = run.wait_for_event("node_registered", 120, where=lambda event: event["node"] == "worker:0")
    run.wait_for_event("cluster_ready", 120)
    kill_all([tensorflow_process(worker["pid"])])
    result = run.wait(300, exit_code=0).events[-1]
    assert [restart["number"] for restart in result["restarts"]] == [1]
    assert accuracy(tmp_path) > 0.9


def test_a_killed_executor_of_a_standalone_cluster_is_replaced(
    nothing_left: None, standalone: StandaloneCluster, tfos_process: Start, tmp_path: Path
) -> None:
    run = start(tfos_process, tmp_path, "--master", standalone.url)
    worker = run.wait_for_event("node_registered", 120, where=lambda event: event["node"] == "worker:0")
    run.wait_for_event("feed_finished", 180, where=lambda event: event["epoch"] == 1)
    kill_all([executor_jvm(worker["pid"])])
    result = run.wait(300, exit_code=0).events[-1]
    assert [restart["number"] for restart in result["restarts"]] == [1]


def test_a_bug_is_tried_twice_and_not_for_ever(nothing_left: None, tfos_process: Start, tmp_path: Path) -> None:
    run = start(tfos_process, tmp_path, "--set", "args.test_file=missing.csv", "--set", "restart.max_restarts=50")
    outcome = run.wait(400, exit_code=int(ExitCode.USER_CODE))
    events: list[dict[str, Any]] = outcome.events
    assert [event["id"] for event in events if event["event"] == "warning"].count("not-restarted") == 1
    # The first failure came after progress, the second without any.
    assert len(events[-1]["restarts"]) == 1


def test_an_executor_that_is_not_replaced_is_lost_infrastructure(
    nothing_left: None, standalone: StandaloneCluster, tfos_process: Start, tmp_path: Path
) -> None:
    run = start(tfos_process, tmp_path, "--master", standalone.url, "--set", "reservation_timeout=20")
    worker = run.wait_for_event("node_registered", 120, where=lambda event: event["node"] == "worker:0")
    run.wait_for_event("feed_finished", 180, where=lambda event: event["epoch"] == 0)
    jvm = executor_jvm(worker["pid"])
    daemon = read_process(jvm.parent)
    assert daemon is not None
    kill_all([daemon, jvm])
    result = run.wait(300, exit_code=int(ExitCode.INFRASTRUCTURE)).events[-1]
    assert "restart 1 found too few executors" in result["error"]
