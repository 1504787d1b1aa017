"""GPUs on real executors: Standalone Workers that declare fake ones, and a nvidia-smi that replays answers."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.nvidia_smi import ANSWERS, install
from testbed.clusters import Recorder, started_cluster
from testbed.gpu_nodes import tell_devices
from testbed.nodes import notes
from testbed.spark_context import start_context
from testbed.standalone import StandaloneCluster, gpu_worker
from testbed.waiting import poll_until

from tfos_core.errors import GpuError

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
TWO_GPUS = {"spark.executor.cores": "2", "spark.cores.max": "4", "spark.executor.resource.gpu.amount": "2"}


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """Two Workers with two cores and two GPUs each; the second was started with a list of devices of its own."""
    folder = tmp_path_factory.mktemp("gpus")
    listed = replace(gpu_worker(folder, ["0", "1"], cores=2), environment={"CUDA_VISIBLE_DEVICES": "7,6"})
    with StandaloneCluster([gpu_worker(folder, ["4", "5"], cores=2), listed]) as cluster:
        yield cluster


def devices(folder: Path) -> dict[str, str]:
    """Node -> CUDA_VISIBLE_DEVICES inside its process."""
    return {node: entries[0]["devices"] for node, entries in notes(folder).items()}


def registered(events: Recorder) -> dict[str, str]:
    return {event.node: ",".join(event.gpus) for event in events.all("node_registered")}


def meet(folder: str, tasks: int) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """A function of a Spark task that ends when `tasks` of them run at the same time."""

    def one(index: int, rows: Iterable[Any]) -> Iterator[int]:
        (Path(folder) / f"{index}").touch()
        poll_until(lambda: len(list(Path(folder).iterdir())) >= tasks, 60, what=f"{tasks} tasks at the same time")
        yield index

    return one


def test_spark_gives_every_node_its_gpus_and_feed_tasks_use_every_core(
    nothing_left: None, workers: StandaloneCluster, tmp_path: Path
) -> None:
    events, fed, served, together = Recorder(), tmp_path / "fed", tmp_path / "served", tmp_path / "together"
    for folder in (fed, served, together):
        folder.mkdir()
    with start_context(workers.url, TWO_GPUS | {"spark.executor.memory": "512m"}) as context:
        with started_cluster(context, tell_devices, {"folder": str(fed)}, on_event=events, options={"gpus": 2}) as running:
            # Four tasks on four cores while the nodes hold all four GPUs: tasks that feed ask for none.
            assert context.parallelize(range(4), 4).mapPartitionsWithIndex(meet(str(together), 4)).count() == 4
            running.train(context.parallelize(range(400), 4))
            running.shutdown(timeout=60)
            table = running.report().gpus
        settings = {"num_ps": 1, "spark_mode": False, "options": {"gpus": 1}}
        with started_cluster(context, tell_devices, {"folder": str(served), "nodes": 2}, **settings) as running:
            running.shutdown(timeout=60)
    # On the second Worker, addresses 0 and 1 of Spark are positions in its list.
    assert sorted(devices(fed).values()) == ["4,5", "7,6"]
    assert devices(fed) == registered(events) == {node: ",".join(gpus) for node, gpus in table.items()}
    order = {entries[0]["devices"]: entries[0]["order"] for entries in notes(fed).values()}
    assert order == {"4,5": "PCI_BUS_ID", "7,6": None}
    assert devices(served)["ps:0"] == ""
    assert devices(served)["worker:0"] in ("4", "7")


@pytest.mark.slow
def test_the_gpu_example_trains_with_a_gpu_for_each_node_and_status_shows_which(
    run_line: RunLine, workers: StandaloneCluster, tfos_home: Path, tmp_path: Path
) -> None:
    spec = str(ROOT / "jobspecs" / "gpu.yaml")
    line = ["tfos", "train", spec, "--master", workers.url, "--set", f"args.export_dir={tmp_path / 'model'}"]
    outcome = run_line([*line, "--set", "spark.executor_cores=2", "--set", "num_epochs=6"], fresh=True, timeout_s=150)
    accuracy = re.search(r"test accuracy ([0-9.]+)", outcome.stdout)
    assert accuracy, outcome.stdout
    assert float(accuracy[1]) >= 0.9
    (record,) = (tfos_home / "runs").iterdir()
    status = run_line(["tfos", "status", record.name]).stdout
    table = dict(re.findall(r"^(\w+:0) +finished, 127\.0\.0\.1, GPU (\d),", status, re.MULTILINE))
    assert table.keys() == {"chief:0", "worker:0"}, status
    assert set(table.values()) == {"4", "7"}


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | str], Path]:
    """Puts a nvidia-smi first on PATH; the function chooses the host that it replays, or how many of `four_idle` there are."""
    host = tmp_path / "host"
    install(tmp_path / "bin", _filled(host, 4))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return functools.partial(_filled, host)


def _filled(folder: Path, what: int | str) -> Path:
    folder.mkdir(exist_ok=True)
    source = ANSWERS / ("four_idle" if isinstance(what, int) else what)
    for name in ("list.txt", "gpus.csv", "processes.csv"):
        lines = (source / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:what] if isinstance(what, int) else lines))
    return folder


@pytest.mark.slow
def test_nodes_of_one_host_share_what_nvidia_smi_shows(
    nothing_left: None, smi: Callable[[int | str], Path], tmp_path: Path
) -> None:
    asked, default = tmp_path / "asked", tmp_path / "default"
    asked.mkdir()
    default.mkdir()
    with start_context("local-cluster[2,1,1024]") as context:
        with started_cluster(context, tell_devices, {"folder": str(asked)}, options={"gpus": 2}, spark_mode=False) as running:
            running.shutdown(timeout=60)
        # One was given where nothing was asked, as in 2022; here only one is free.
        smi("two_3090_one_busy")
        with started_cluster(context, tell_devices, {"folder": str(default)}, spark_mode=False) as running:
            running.shutdown(timeout=60)
        smi(3)
        with pytest.raises(GpuError) as caught:  # noqa: SIM117
            with started_cluster(context, tell_devices, {"folder": str(tmp_path)}, options={"gpus": 2}, spark_mode=False):
                pass
    assert devices(asked) == {"worker:0": "0,1", "worker:1": "2,3"}
    assert sorted(devices(default).items()) == [("worker:0", "1"), ("worker:1", "")]
    assert re.fullmatch(r"too few GPUs on [\w.:-]+: 4 needed \(worker:0, worker:1 with 2 each\), 3 present", str(caught.value))


@pytest.mark.slow
def test_a_run_without_enough_gpus_exits_4_and_names_the_host(
    nothing_left: None, run_line: RunLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", "no_driver")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    outcome = run_line(["tfos", "train", str(ROOT / "jobspecs" / "gpu.yaml")], 4, fresh=True, timeout_s=120)
    assert "too few GPUs on 127.0.0.1: 2 needed (chief:0, worker:0 with 1 each), 0 present (nvidia-smi -L ended with code 9" in (
        outcome.stdout + outcome.stderr
    )
