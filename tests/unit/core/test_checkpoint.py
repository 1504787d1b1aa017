"""Checkpoints of a run: real TensorFlow variables, real folders."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tfos_core.checkpoint import Checkpoints
from tfos_core.context import TFNodeContext
from tfos_core.errors import ConfigError
from tfos_core.topology import Role

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")


def context(folder: Path, reports: list[Any], index: int = 0, run_id: str = "r1") -> TFNodeContext:
    return TFNodeContext(
        executor_id=index,
        role=Role.WORKER,
        index=index,
        cluster_spec={"worker": ["a:1", "b:1"]},
        working_dir=str(folder),
        run_id=run_id,
        report=reports.append,
    )


def variable(value: float) -> Any:
    import tensorflow as tf

    return tf.Variable(value)


def test_a_new_run_begins_with_epoch_0_and_a_restarted_one_where_it_was(tmp_path: Path) -> None:
    reports: list[Any] = []
    weight = variable(1.0)
    checkpoints = context(tmp_path, reports).checkpoints("ck", weight=weight)
    assert checkpoints.restore() == 0
    weight.assign(5.0)
    checkpoints.save(3, step=40)
    assert reports == [{"op": "node.checkpoint", "epoch": 3, "step": 40}]
    again = variable(0.0)
    restored = context(tmp_path, []).checkpoints("ck", weight=again)
    assert (restored.restore(), restored.step, float(again.numpy())) == (3, 40, 5.0)


def test_another_run_has_checkpoints_of_its_own_unless_it_names_this_one(tmp_path: Path) -> None:
    context(tmp_path, []).checkpoints("ck", weight=variable(1.0)).save(3)
    other = context(tmp_path, [], run_id="r2")
    assert other.checkpoints("ck", weight=variable(0.0)).restore() == 0
    assert other.checkpoints("ck", run="r1", weight=variable(0.0)).restore() == 3


def test_only_the_latest_stay_and_what_was_cut_off_is_not_taken_for_one(tmp_path: Path) -> None:
    weight = variable(0.0)
    checkpoints = context(tmp_path, []).checkpoints("ck", weight=weight)
    for epoch in range(1, 13):
        weight.assign(float(epoch))
        checkpoints.save(epoch)
    folder = tmp_path / "ck" / "r1"
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-000011", "checkpoint-000012"]
    (folder / ".checkpoint-000013.abc.tmp").mkdir()
    (folder / ".checkpoint-000013.abc.tmp" / "state.index").write_text("half")
    again = variable(0.0)
    assert context(tmp_path, []).checkpoints("ck", weight=again).restore() == 12
    assert float(again.numpy()) == 12.0


def test_nodes_other_than_the_chief_take_part_and_keep_nothing(tmp_path: Path) -> None:
    reports: list[Any] = []
    worker = context(tmp_path, reports, index=1).checkpoints("ck", weight=variable(1.0))
    worker.save(1)
    assert reports == []
    assert not (tmp_path / "ck").exists()


def test_another_model_than_the_saved_one_is_an_error(tmp_path: Path) -> None:
    context(tmp_path, []).checkpoints("ck", weight=variable(1.0)).save(1)
    with pytest.raises(AssertionError, match="not bound to checkpointed values"):
        context(tmp_path, []).checkpoints("ck", weight=variable(1.0), bias=variable(2.0)).restore()


def test_the_callback_saves_at_the_end_of_epochs(tmp_path: Path) -> None:
    reports: list[Any] = []
    checkpoints = context(tmp_path, reports).checkpoints("ck", weight=variable(1.0))
    callback = checkpoints.callback(every=2)
    for epoch in range(4):
        callback.on_epoch_end(epoch, {})
    assert [report["epoch"] for report in reports] == [2, 4]


def test_the_example_of_the_page_goes_on_after_the_epochs_that_are_done(tmp_path: Path) -> None:
    import tensorflow as tf

    page = (Path(__file__).parents[3] / "docs" / "restart.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ctx.checkpoints" in block)
    dataset = tf.data.Dataset.from_tensors((tf.ones([4, 1]), tf.ones([4, 1])))
    epochs: list[int] = []
    weights = []
    for _ in range(2):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.build((None, 1))
        model.compile("adam", "mse")
        names = {"model": model, "dataset": dataset, "args": argparse.Namespace(checkpoint_dir="ck")}
        ctx = context(tmp_path, [])
        ctx.num_epochs = 3
        exec(example, names | {"ctx": ctx}, names)
        epochs.append(names["done"])
        weights.append(float(model.get_weights()[0][0][0]))
    assert epochs == [0, 3]
    assert weights[0] == weights[1]


def test_nothing_to_save_and_nothing_to_keep_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to save"):
        context(tmp_path, []).checkpoints("ck")
    with pytest.raises(ConfigError, match="keep is 0"):
        Checkpoints(str(tmp_path), {"weight": 1}, keep=0, is_chief=True, report=lambda _: None)


def test_a_file_system_that_tensorflow_does_not_know_holds_them_too(tmp_path: Path) -> None:
    """fsspec's file system in memory stands for any that is not local."""
    weight = variable(4.0)
    folder = "memory://tfos-checkpoints"
    Checkpoints(folder, {"weight": weight}, is_chief=True, report=lambda _: None).save(2)
    again = variable(0.0)
    assert Checkpoints(folder, {"weight": again}, is_chief=False, report=lambda _: None).restore() == 2
    assert float(again.numpy()) == 4.0
