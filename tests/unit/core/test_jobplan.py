"""The plan that the command line hands to the driver shim."""

from __future__ import annotations

import json

import pytest

from tfos_core.jobplan import DataPlan, FunctionRef, InferPlan, JobPlan
from tfos_core.tensorboard import TensorBoardOptions

SMALL = JobPlan(
    run_id="digits-1",
    name="digits",
    run_folder="/home/me/.tfos/runs/digits-1",
    channel=None,
    entrypoint=FunctionRef(module="digits", function="main_fun", shown="apps/digits.py:main_fun"),
    args={},
    input_mode="tensorflow",
    num_nodes=1,
)

FULL = JobPlan(
    run_id="digits-2",
    name="digits",
    run_folder="/home/me/.tfos/runs/digits-2",
    channel="/home/me/.tfos/runs/digits-2/channel.json",
    entrypoint=FunctionRef(module="digits", function="main_fun", shown="apps/digits.py:main_fun"),
    args={"batch_size": 64, "rates": [0.1, 0.01], "nested": {"name": "\u00e9t\u00e9", "none": None}},
    input_mode="spark",
    num_nodes=4,
    num_ps=1,
    master_node="chief",
    eval_node=True,
    driver_ps_nodes=True,
    release_port=False,
    reservation_timeout=30,
    feed_timeout=12.5,
    num_epochs=3,
    grace_secs=1,
    shutdown_timeout=100,
    keras="legacy",
    tensorboard=TensorBoardOptions(enabled=True, port=6006, bind="loopback", keep_secs=2.5, collect=False),
    log_dir="/logs",
    data=DataPlan(
        path="hdfs://nn:8020/digits",
        format="csv",
        options={"header": True},
        columns=("image", "label"),
        input_mapping={"image": "x"},
        transform=FunctionRef(module="digits", function="prepare", shown="apps/digits.py:prepare"),
        source=FunctionRef(module="digits", function="load", shown="apps/digits.py:load"),
        cache="node",
        cache_memory_bytes=1,
        cache_disk_bytes=2,
        cache_shuffle=True,
        cache_seed=3,
    ),
    infer=InferPlan(
        output="/out",
        output_format="json",
        output_mode="append",
        export_dir="/models/1",
        signature_def_key="up",
        tag_set="a,b",
        input_mapping={"a": "x"},
        output_mapping={"y": "b"},
        batch_size=7,
        keep=("a", "b"),
        binary_outputs=("y",),
        bad_rows="/bad",
    ),
    environment={"A": "1"},
    secrets=("TOKEN",),
    detached=True,
)


@pytest.mark.parametrize("plan", [SMALL, FULL], ids=["defaults", "everything set"])
def test_a_plan_comes_back_from_its_json(plan: JobPlan) -> None:
    assert JobPlan.from_json(plan.to_json()) == plan


def test_arguments_given_as_a_list_come_back_as_a_tuple() -> None:
    text = SMALL.to_json().replace('"args": {}', '"args": ["--epochs", "3"]')
    assert JobPlan.from_json(text).args == ("--epochs", "3")


@pytest.mark.parametrize("version", [0, 2, None])
def test_a_plan_of_another_version_is_refused(version: int | None) -> None:
    data = json.loads(SMALL.to_json()) | {"v": version}
    with pytest.raises(ValueError, match="the job plan is not of version 1"):
        JobPlan.from_json(json.dumps(data))


def test_a_plan_has_names_of_secrets_and_no_place_for_their_values() -> None:
    assert json.loads(FULL.to_json())["secrets"] == ["TOKEN"]
