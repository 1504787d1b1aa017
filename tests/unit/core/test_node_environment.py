from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.node_environment import process_environment
from tfos_core.processes import start_time
from tfos_core.topology import InputMode, NodeSlot, Role

SPEC = {"chief": ["c:1"], "worker": ["w:1"], "evaluator": ["e:1"]}


def config(role: Role = Role.WORKER, **cluster: Any) -> NodeConfig:
    values: dict[str, Any] = {
        "run_id": "run",
        "generation": "g",
        "server_host": "h",
        "server_port": 1,
        "secret": "of the cluster",
        "has_user_secrets": False,
        "input_mode": InputMode.SPARK,
        "reservation_timeout": 1.5,
        "release_port": True,
        "environment": {},
        "keras": None,
        "threads": None,
        "default_fs": "file://",
        "num_epochs": 1,
        "data": {"path": "x", "columns": ["a"]},
        "log_dir": None,
    }
    return NodeConfig(
        cluster=ClusterConfig(**{**values, **cluster}),
        slot=NodeSlot(executor_id=4, role=role, index=0),
        jvm_pid=1,
        jvm_started=2,
        working_dir="/w",
        python="python",
        python_path="/engine",
    )


def environment(node: NodeConfig, base: dict[str, str] | None = None, secrets: dict[str, str] | None = None) -> dict[str, str]:
    return process_environment(node, SPEC, secrets or {}, base or {}, temporary="/tmp/node")


def test_tf_config_is_this_nodes_whoever_set_another() -> None:
    env = environment(config(environment={"TF_CONFIG": "of the job"}), {"TF_CONFIG": "of the worker"}, {"TF_CONFIG": "secret"})
    assert json.loads(env["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    assert "evaluator" not in json.loads(env["TF_CONFIG"])["cluster"]
    assert "evaluator" in json.loads(environment(config(Role.EVALUATOR))["TF_CONFIG"])["cluster"]


def test_marks_name_the_node_and_its_supervisor_whoever_set_others() -> None:
    env = environment(config(environment={"TFOS_NODE": "x", "TFOS_SUPERVISOR": "1:1"}))
    assert env["TFOS_NODE"] == "run:g:worker:0"
    assert env["TFOS_SUPERVISOR"] == f"{os.getpid()}:{start_time(os.getpid())}"


def test_temporary_files_go_into_the_nodes_own_folder_whoever_set_another() -> None:
    assert environment(config(environment={"TMPDIR": "/of-the-job"}), {"TMPDIR": "/of-the-worker"})["TMPDIR"] == "/tmp/node"


def test_what_belongs_to_sparks_worker_stays_there_and_the_rest_is_passed_on() -> None:
    env = environment(config(), {"PYTHON_WORKER_FACTORY_SECRET": "s", "HOME": "/h"})
    assert "PYTHON_WORKER_FACTORY_SECRET" not in env
    assert env["HOME"] == "/h"
    assert "of the cluster" not in str(env)


def test_the_job_wins_over_the_engine_and_secrets_over_both() -> None:
    node = config(environment={"OMP_NUM_THREADS": "7", "A": "job"}, threads=2, keras="legacy")
    env = environment(node, {"OMP_NUM_THREADS": "1", "A": "worker"}, {"A": "secret"})
    assert (env["OMP_NUM_THREADS"], env["TF_NUM_INTRAOP_THREADS"], env["A"]) == ("7", "2", "secret")
    assert env["TF_USE_LEGACY_KERAS"] == "1"


@pytest.mark.parametrize(("keras", "expected"), [("legacy", "1"), ("keras3", None), (None, "0")])
def test_the_keras_version_is_the_jobs(keras: str | None, expected: str | None) -> None:
    assert environment(config(keras=keras), {"TF_USE_LEGACY_KERAS": "0"}).get("TF_USE_LEGACY_KERAS") == expected


@pytest.mark.parametrize(
    ("changes", "spec", "base", "expected"),
    [
        ({}, SPEC, {}, "0"),
        ({"input_mode": InputMode.TENSORFLOW}, SPEC, {}, "0"),
        ({"equal_steps": True}, SPEC, {}, None),
        ({"independent": True}, SPEC, {}, None),
        ({}, {"worker": ["w:1"], "evaluator": ["e:1"]}, {}, None),
        ({}, {"worker": ["w:1", "w:2"], "ps": ["p:1"]}, {}, None),
        ({}, SPEC, {"TF_ENABLE_ONEDNN_OPTS": "1"}, "1"),
        ({"environment": {"TF_ENABLE_ONEDNN_OPTS": "1"}}, SPEC, {}, "1"),
    ],
)
def test_nodes_that_may_get_empty_batches_use_kernels_that_take_them(
    changes: dict[str, Any], spec: dict[str, list[str]], base: dict[str, str], expected: str | None
) -> None:
    node = config(**changes)
    assert process_environment(node, spec, {}, base, temporary="/tmp/node").get("TF_ENABLE_ONEDNN_OPTS") == expected
    on_gpu = replace(node, gpus=("0",))
    assert process_environment(on_gpu, spec, {}, {}, temporary="/tmp/node").get("TF_ENABLE_ONEDNN_OPTS") in (None, "1")


def test_the_jobs_own_python_path_does_not_hide_the_engine() -> None:
    assert environment(config(), {"PYTHONPATH": "/of/the/worker"})["PYTHONPATH"] == "/engine"
    assert environment(config(environment={"PYTHONPATH": "/mine"}))["PYTHONPATH"] == f"/mine{os.pathsep}/engine"


def test_a_configuration_survives_json() -> None:
    node = replace(config(Role.CHIEF), gpus=("0", "GPU-1"))
    assert NodeConfig.from_dict(json.loads(json.dumps(node.to_dict()))) == node
    assert "of the cluster" not in repr(node)


@pytest.mark.parametrize(
    ("role", "mode", "fed"),
    [
        (Role.WORKER, InputMode.SPARK, True),
        (Role.CHIEF, InputMode.SPARK, True),
        (Role.PS, InputMode.SPARK, False),
        (Role.EVALUATOR, InputMode.SPARK, False),
        (Role.WORKER, InputMode.TENSORFLOW, False),
    ],
)
def test_only_nodes_that_are_fed_give_their_task_back(role: Role, mode: InputMode, fed: bool) -> None:
    node = config(role, input_mode=mode)
    assert (node.is_fed, node.holds_task) == (fed, not fed)
