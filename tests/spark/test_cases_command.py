"""`tfos train` from start to end, well and badly: exit codes, what it says, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.commandline import TfosProcess
from testbed.processes import read_process
from testbed.waiting import poll_until

APP = """
import os
import pathlib
import time


def rows(spark, args):
    return spark.sparkContext.parallelize(range(400), 4)


def main_fun(args, ctx):
    feed = ctx.get_data_feed()
    node = f"{ctx.job_name}-{ctx.task_index}"
    if args.behaviour == "raise" and ctx.task_index == 1:
        raise ValueError("no column 'label'")
    while not feed.should_stop():
        rows = feed.next_batch(10)
        print(f"{node} took {len(rows)} rows")
        note = pathlib.Path(args.folder) / node
        note.with_suffix(".new").write_text(str(os.getpid()))
        note.with_suffix(".new").rename(note)
        if args.behaviour == "early":
            return
        if args.behaviour == "stay":
            time.sleep(300)
"""

SPEC = """
name: cases
entrypoint: app.py:main_fun
args: {behaviour: %s, folder: %s}
input_mode: spark
num_executors: 2
master_node: null
data: {source: "app.py:rows"}
spark: {executor_memory: 512m}
"""

Start = Callable[..., TfosProcess]


@pytest.fixture
def job(tmp_path: Path, tfos_process: Start) -> Callable[..., TfosProcess]:
    """Starts the job with one of its behaviours."""

    def start(behaviour: str, options: str = "", **environment: str) -> TfosProcess:
        (tmp_path / "app.py").write_text(APP)
        (tmp_path / "nodes").mkdir()
        (tmp_path / "job.yaml").write_text(SPEC % (behaviour, tmp_path / "nodes"))
        return tfos_process(f"tfos train job.yaml --json {options}", **environment)

    return start


def wait_for_both_nodes(process: TfosProcess, folder: Path) -> dict[str, int]:
    """The pids of the nodes' processes, once both are in a step."""
    names = ("worker-0", "worker-1")

    def both_are_there() -> bool:
        return all((folder / "nodes" / name).exists() for name in names) or process.process.poll() is not None

    poll_until(both_are_there, 120, what=lambda: f"both nodes are in a step:\n{process.stdout}\n{process.stderr}")
    assert process.process.poll() is None, f"{process.stdout}\n{process.stderr}"
    return {name: int((folder / "nodes" / name).read_text()) for name in names}


def result_of(process: TfosProcess, exit_code: int, deadline_s: float = 60) -> dict[str, Any]:
    """The last event of a run that has ended with this code."""
    outcome = process.wait(deadline_s, exit_code=exit_code)
    result = outcome.events[-1]
    assert (result["event"], result["exit_code"]) == ("result", exit_code)
    return result


def test_nodes_that_return_early_are_a_success_that_says_what_was_not_consumed(nothing_left: None, job: Start) -> None:
    process = job("early")
    result = result_of(process, 0, 120)
    assert (result["status"], result["rows_fed"]) == ("success", 20)
    assert sum(event["partitions_discarded"] for event in process.events if event["event"] == "feed_finished") >= 2
    kinds = [event["event"] for event in process.events]
    for kind in ("submitted", "driver_started", "cluster_ready", "feed_finished", "shutdown_finished"):
        assert kind in kinds


def test_a_node_that_raises_exits_1_with_its_traceback(nothing_left: None, job: Start) -> None:
    result = result_of(job("raise"), 1, 120)
    failure = result["first_failure"]
    assert failure["node"] == "worker:1"
    assert failure["host"]
    assert "ValueError: no column 'label'" in failure["traceback"]
    assert "in main_fun" in failure["traceback"]


def test_a_killed_tensorflow_process_exits_1_within_5_seconds(nothing_left: None, job: Start, tmp_path: Path) -> None:
    process = job("stay")
    os.kill(wait_for_both_nodes(process, tmp_path)["worker-0"], signal.SIGKILL)
    killed = time.monotonic()
    failed = process.wait_for_event("node_failed", 20)
    assert time.monotonic() - killed < 5
    assert (failed["node"], failed["signal"]) == ("worker:0", 9)
    assert "worker-0 took 10 rows" in failed["last_lines"]
    assert result_of(process, 1)["first_failure"]["node"] == "worker:0"


@pytest.mark.parametrize("victim", ["python", pytest.param("java", marks=pytest.mark.slow)])
def test_a_killed_driver_exits_7_and_leaves_nothing(nothing_left: None, job: Start, tmp_path: Path, victim: str) -> None:
    process = job("stay")
    pids = wait_for_both_nodes(process, tmp_path)
    driver = read_process(process.wait_for_event("driver_started")["pid"])
    assert driver is not None
    os.kill(driver.pid if victim == "python" else driver.parent, signal.SIGKILL)
    process.wait(60, exit_code=7)
    for pid in pids.values():
        poll_until(lambda pid=pid: read_process(pid) is None, 10, what="the nodes are gone")  # type: ignore[misc]


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_exits_130_and_leaves_nothing(
    nothing_left: None, job: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = job("stay")
    wait_for_both_nodes(process, tmp_path)
    process.signal(number)
    result = result_of(process, 130)
    assert result["status"] == "interrupted"


def test_a_terminals_interrupt_during_start_exits_130_and_leaves_nothing(nothing_left: None, job: Start) -> None:
    process = job("stay")
    process.wait_for_event("submitted")
    process.interrupt_group()
    process.wait(60, exit_code=130)


def test_a_second_interrupt_kills_what_the_first_one_did_not_end(nothing_left: None, job: Start, tmp_path: Path) -> None:
    process = job("stay")
    wait_for_both_nodes(process, tmp_path)
    driver = process.wait_for_event("driver_started")
    # A driver that does not react, as in a hanging call into the JVM.
    os.kill(driver["pid"], signal.SIGSTOP)
    process.signal()
    process.wait_for_text("once more", 20)
    process.signal()
    process.wait(30, exit_code=130)


def test_a_master_that_is_not_there_exits_5_and_is_named(nothing_left: None, job: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    process = job("consume", f"--master spark://127.0.0.1:{port}")
    result = result_of(process, 5, 60)
    assert time.monotonic() - started < 60
    assert f"127.0.0.1:{port}" in result["error"]
