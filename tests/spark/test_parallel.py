"""Independent instances on real executors: results, failures, turns, and the job spec."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.event_nodes import write_and_end
from testbed.instances import not_json, one_fails, who_am_i

from tfos_core import TFParallel
from tfos_core.errors import NodeFailedError, ReservationTimeoutError
from tfos_core.options import ClusterOptions
from tfos_core.tensorboard import EventFileFolder

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]


def test_every_instance_runs_alone_and_returns_its_result(sc: SparkContext) -> None:
    results = TFParallel.run(sc, who_am_i, "a", 2)
    assert [(result.index, result.ok) for result in results] == [(0, True), (1, True)]
    assert [result.value["index"] for result in results] == [0, 1]
    assert {result.value["of"] for result in results} == {2}
    assert {result.value["tf_config"] for result in results} == {None}
    assert len({result.value["pid"] for result in results}) == 2


def test_a_failed_instance_does_not_stop_the_others(sc: SparkContext) -> None:
    results = TFParallel.run(sc, one_fails, 1, 2, check=False)
    assert [result.value for result in results] == [0, None]
    assert results[1].failure is not None
    assert results[1].failure.outcome.error == "ValueError: no luck with 1"
    with pytest.raises(
        NodeFailedError, match=r"1 of 2 instances failed; the first: worker:0 .* ValueError: no luck with 0"
    ) as caught:
        TFParallel.run(sc, one_fails, 0, 2)
    assert "one_fails" in caught.value.remote_traceback


def test_more_instances_than_executors_take_turns_without_a_barrier(sc: SparkContext) -> None:
    results = TFParallel.run(sc, one_fails, -1, 5, use_barrier=False)
    assert [result.value for result in results] == [0, 1, 2, 3, 4]


def test_event_files_of_all_instances_are_collected_also_of_those_that_fail(
    sc: SparkContext, nothing_left: None, tmp_path: Path
) -> None:
    record, args = tmp_path / "tensorboard", {"folder": str(tmp_path), "failing": [1]}
    options = ClusterOptions(on_file=EventFileFolder(record))
    # Two of them run in one executor, one after the other.
    results = TFParallel.run(sc, write_and_end, args, 3, use_barrier=False, check=False, options=options)
    assert [result.ok for result in results] == [True, False, True]
    assert {str(path.relative_to(record)): path.read_text() for path in record.rglob("*tfevents*")} == {
        f"worker-{index}/train/events.out.tfevents.1.host.1": f"written by worker:{index}" for index in range(3)
    }


def test_more_instances_than_executors_are_refused_with_a_barrier(sc: SparkContext) -> None:
    with pytest.raises(ReservationTimeoutError, match="3 nodes need 3 executors, 2 available"):
        TFParallel.run(sc, who_am_i, None, 3)


def test_a_result_that_is_no_json_is_no_result(sc: SparkContext) -> None:
    assert [result.value for result in TFParallel.run(sc, not_json, None, 1, use_barrier=False)] == [None]


def test_the_job_spec_runs_instances_and_prints_their_results(run_line: RunLine, tfos_home: Path, nothing_left: None) -> None:
    outcome = run_line(["tfos", "train", str(ROOT / "jobspecs" / "parallel.yaml")], fresh=True, timeout_s=150)
    for index, rate in enumerate((0.001, 0.01)):
        assert f"instance {index} on 127.0.0.1: {{'learning_rate': {rate}, 'accuracy': 0.9" in outcome.stdout
    (record,) = (tfos_home / "runs").iterdir()
    written = {path.relative_to(record / "tensorboard").parts[:2] for path in record.rglob("events.out.tfevents.*")}
    assert written == {("worker-0", "train"), ("worker-1", "train")}


@pytest.mark.slow
def test_a_failed_instance_gives_the_exit_code_of_user_code(run_line: RunLine, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def main_fun(args, ctx):\n    return 1 / ctx.task_index\n")
    (tmp_path / "job.yaml").write_text("name: part\nentrypoint: app.py:main_fun\nmode: parallel\nnum_executors: 2\n")
    outcome = run_line(["tfos", "train", str(tmp_path / "job.yaml")], exit_code=1, fresh=True, timeout_s=120)
    assert "1 of 2 instances failed; the first: worker:0" in outcome.stderr
    assert "ZeroDivisionError" in outcome.stderr
