"""How many cores a node task asks for, so that none shares an executor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core.errors import ConfigError
from tfos_core.placement import Placement, _slots, node_cores


@pytest.mark.parametrize(
    ("cores", "task_cpus", "expected"),
    [([4], 1, 4), ([2, 2], 1, 2), ([2, 3], 1, 2), ([1, 1], 1, 1), ([2, 2], 2, 2), ([2, 4], 4, 2)],
)
def test_a_node_asks_for_all_cores_of_the_smallest_executor(cores: list[int], task_cpus: int, expected: int) -> None:
    assert node_cores(cores, task_cpus) == expected


@pytest.mark.parametrize(("cores", "task_cpus"), [([2, 4], 1), ([1, 2], 1), ([2, 4], 2), ([1, 8], 4)])
def test_an_executor_that_could_hold_two_nodes_is_refused_with_the_line_to_set(cores: list[int], task_cpus: int) -> None:
    with pytest.raises(ConfigError, match=f"executors have from {cores[0]} to {cores[1]} cores") as refusal:
        node_cores(cores, task_cpus)
    assert f"spark.executor.cores={cores[0]}" in str(refusal.value.hint)


@pytest.mark.parametrize(("gpus", "line"), [(0, "4 before"), (2, "4 and spark.task.resource.gpu.amount=2 before")])
def test_a_spark_without_stage_level_scheduling_is_refused_with_the_line_to_set(gpus: int, line: str) -> None:
    def refuse(profile: Any) -> None:
        raise RuntimeError("TaskResourceProfiles are only supported for Standalone cluster for now")

    manager = SimpleNamespace(addResourceProfile=refuse)
    scala = SimpleNamespace(resourceProfileManager=lambda: manager)
    sc: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala), version="3.5.0", master="yarn")
    profile: Any = SimpleNamespace(_java_resource_profile=object())
    with pytest.raises(
        ConfigError, match=r"Spark 3\.5\.0 on yarn can not give a node more of an executor .*only supported for Standalone"
    ) as refusal:
        _slots(sc, Placement(profile=profile, cores=4, executors=(), gpus=gpus))
    assert f"spark.task.cpus={line} the SparkContext starts" in str(refusal.value.hint)
