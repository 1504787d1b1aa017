"""TensorBoard beside the leading node of real clusters, and what is left of its event files when the executors are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import event_nodes
from testbed.clusters import Recorder, started_cluster
from testbed.nodes import notes
from testbed.processes import Process, marked, read_process
from testbed.session import Session
from testbed.waiting import poll_until

from tfos_core.cancellation import Cancellation
from tfos_core.errors import NodeFailedError, NodeLostError
from tfos_core.tensorboard import EventFileFolder, TensorBoardOptions

if TYPE_CHECKING:
    from pyspark import SparkContext
    from testbed.commandline import TfosProcess
    from testbed.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]

#: Reads every event file below a folder with TensorFlow, in a process of its own.
READER = """
import json, pathlib, sys
import tensorflow as tf
folder, found = pathlib.Path(sys.argv[1]), {}
for path in sorted(folder.rglob("*tfevents*")):
    values = found.setdefault(str(path.parent.relative_to(folder)), [])
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        scalars = [value for value in event.summary.value if value.tensor.dtype == tf.float32.as_datatype_enum]
        values += [[value.tag, event.step, float(tf.make_ndarray(value.tensor))] for value in scalars]
print(json.dumps(found))
"""


def read_scalars(folder: Path) -> dict[str, list[list[Any]]]:
    """Run -> [tag, step, value] of everything that TensorFlow finds below a folder."""
    done = subprocess.run([sys.executable, "-c", READER, str(folder)], capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, list[list[Any]]] = json.loads(done.stdout)
    return found


def ask(url: str, path: str) -> Any:
    """What TensorBoard answers."""
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
        return json.load(answer)


def boards(session: Session) -> list[Process]:
    """The running TensorBoards of this session."""
    return [process for process in marked(session.mark) if process.runs("tensorboard.main")]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    """Where event files are collected; the folder of `nodes.note` is beside it."""
    (tmp_path / "notes").mkdir()
    yield tmp_path / "tensorboard"


def collected(record: Path) -> dict[str, bytes]:
    return {str(path.relative_to(record)): path.read_bytes() for path in sorted(record.rglob("*tfevents*"))}


BYTES_OF_BOTH = {f"worker-{index}/train/events.out.tfevents.1.host.1": f"written by worker:{index}".encode() for index in (0, 1)}


def test_scalars_show_while_nodes_run_and_are_kept_when_executors_are_gone(
    sc: SparkContext, nothing_left: None, testbed_session: Session, record: Path
) -> None:
    events = Recorder()
    options = {
        "on_file": EventFileFolder(record),
        "collect_interval_s": 1.0,
        "tensorboard": TensorBoardOptions(keep_secs=3600),
        "cancellation": (cancellation := Cancellation()),
    }
    args = {"folder": str(record.parent / "notes")}
    with started_cluster(
        sc, event_nodes.write_scalars, args, spark_mode=False, tensorboard=True, on_event=events, options=options
    ) as running:
        url = running.tensorboard_url()
        assert url is not None
        assert events.wait_for("tensorboard", 120).url == url
        poll_until(lambda: len(notes(record.parent / "notes")) == 2, 120, what="both nodes have written")
        # Periodically: both have more steps to do.
        poll_until(lambda: len(collected(record)) == 2 and all(len(data) > 200 for data in collected(record).values()), 60)
        # TensorBoard sees the disk of its own node only.
        poll_until(lambda: "worker-0/train" in ask(url, "/data/runs"), 60, what="TensorBoard shows the run")
        poll_until(lambda: "loss" in ask(url, "/data/plugin/scalars/tags").get("worker-0/train", {}), 60, what="and its tags")
        (record.parent / "notes" / "go").touch()
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(running.shutdown, timeout=60)
            assert events.wait_for("tensorboard_kept", 60).url == url
            points = poll_until(lambda: all_points(url), 60, what="TensorBoard shows the last step")
            assert [(point[1], round(point[2], 4)) for point in points] == expected(0)
            assert not ending.done()
            cancellation.request("enough looked at")
            ending.result(60)
        assert running.tensorboard_url() is None
    assert boards(testbed_session) == []
    scalars = read_scalars(record)
    assert {run: [(step, round(value, 4)) for _, step, value in values] for run, values in scalars.items()} == {
        f"worker-{index}/train": expected(index) for index in (0, 1)
    }
    assert events.all("warning") == []


def all_points(url: str) -> list[list[float]]:
    points: list[list[float]] = ask(url, "/data/plugin/scalars/scalars?tag=loss&run=worker-0%2Ftrain")
    return points if len(points) == event_nodes.STEPS else []


def expected(worker: int) -> list[tuple[int, float]]:
    return [(step, round(event_nodes.loss_at(step, worker), 4)) for step in range(event_nodes.STEPS)]


@pytest.mark.parametrize("spark_mode", [True, False], ids=["spark", "tensorflow"])
def test_event_files_are_there_after_a_failure_and_tensorboard_is_not(
    spark_mode: bool, sc: SparkContext, nothing_left: None, testbed_session: Session, record: Path
) -> None:
    args = {"folder": str(record.parent / "notes"), "failing": [1], "stays": True}
    options = {"on_file": EventFileFolder(record), "tensorboard": TensorBoardOptions(keep_secs=3600)}
    with (
        pytest.raises(NodeFailedError, match="no column 'label' on worker:1"),
        started_cluster(sc, event_nodes.write_and_end, args, spark_mode=spark_mode, tensorboard=True, options=options) as running,
    ):
        running.shutdown(timeout=60)
    assert boards(testbed_session) == []
    found = collected(record)
    assert found.items() <= BYTES_OF_BOTH.items()
    assert "worker-1/train/events.out.tfevents.1.host.1" in found


@pytest.mark.parametrize("victim", ["program", "supervisor"])
def test_nothing_outlives_a_node_that_is_killed(
    victim: str, sc: SparkContext, nothing_left: None, testbed_session: Session, record: Path
) -> None:
    args = {"folder": str(record.parent / "notes"), "stays": True}
    options = {"on_file": EventFileFolder(record), "collect_interval_s": 0.2}
    with (
        pytest.raises((NodeFailedError, NodeLostError), match="worker:0"),
        started_cluster(sc, event_nodes.write_and_end, args, spark_mode=False, tensorboard=True, options=options) as running,
    ):
        (board,) = poll_until(lambda: boards(testbed_session), 60, what="TensorBoard runs")
        poll_until(lambda: collected(record) == BYTES_OF_BOTH, 60, what="both nodes' files have been collected")
        pid = notes(record.parent / "notes")["worker:0"][0]["pid"] if victim == "program" else board.parent
        os.kill(pid, signal.SIGKILL)
        # The driver has to hear of it by itself: nobody waits in shutdown yet.
        poll_until(lambda: read_process(board.pid) is None, 60, what="TensorBoard has ended with its node")
        running.shutdown(timeout=30)
    assert collected(record) == BYTES_OF_BOTH


def test_a_run_goes_on_when_tensorboard_dies(sc: SparkContext, nothing_left: None, testbed_session: Session, record: Path) -> None:
    events = Recorder()
    args = {"folder": str(record.parent / "notes")}
    options = {"environment": {"TENSORBOARD_PORT": "none"}, "tensorboard": TensorBoardOptions(keep_secs=3600)}
    with started_cluster(
        sc, event_nodes.write_and_end, args, spark_mode=False, tensorboard=True, on_event=events, options=options
    ) as running:
        (board,) = poll_until(lambda: boards(testbed_session), 60, what="TensorBoard runs")
        os.kill(board.pid, signal.SIGKILL)
        # It would be kept for an hour.
        running.shutdown(timeout=60)
        assert running.tensorboard_url() is None
    messages = [event.message for event in events.all("warning")]
    assert any("TENSORBOARD_PORT is 'none', which is no port" in message for message in messages)
    assert any("was killed by signal 9" in message for message in messages)


@pytest.mark.slow
def test_the_example_shows_the_digits_and_keeps_what_it_showed(
    tfos_process: Callable[..., TfosProcess],
    tfos_home: Path,
    standalone: StandaloneCluster,
    tmp_path: Path,
    testbed_session: Session,
) -> None:
    spec, export = ROOT / "jobspecs" / "tensorboard.yaml", tmp_path / "exports" / "digits"
    settings = [f"args.export_dir={export}", "tensorboard.keep_secs=3600", "tensorboard.bind=loopback"]
    line = ["tfos", "train", str(spec), "--master", standalone.url, "--json", *(f"--set={setting}" for setting in settings)]
    run = tfos_process(line)
    url = run.wait_for_event("tensorboard_kept", 150)["url"]
    assert url.startswith("http://127.0.0.1:")
    assert run.wait_for_event("tensorboard", 60)["url"] == url
    poll_until(lambda: "epoch_loss" in ask(url, "/data/plugin/scalars/tags").get("chief-0/train", {}), 60, what="its scalars show")
    run.signal(signal.SIGINT)
    run.wait(60, exit_code=0)
    assert run.events[-1]["status"] == "success"
    assert boards(testbed_session) == []
    (record,) = (tfos_home / "runs").iterdir()
    standalone.close()
    # Of several nodes that train one model with `fit`, Keras lets the chief keep its summaries and removes those of the others.
    ((run_name, values),) = read_scalars(record / "tensorboard").items()
    losses = [(step, value) for tag, step, value in values if tag == "epoch_loss"]
    assert run_name == "chief-0/train"
    assert [step for step, _ in losses] == list(range(12))
    assert losses[-1][1] < losses[0][1] / 4
