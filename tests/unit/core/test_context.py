"""What a program sees of its cluster through `ctx`."""

from __future__ import annotations

from typing import Any

import pytest

from tfos_core.context import TFNodeContext
from tfos_core.errors import ClusterStateError
from tfos_core.topology import Role, cluster_seen_by

SPEC = {"chief": ["c:1"], "evaluator": ["e:1"], "ps": ["p:1", "p:2"], "worker": ["w:1", "w:2"]}


def context(role: Role, index: int = 0, **settings: Any) -> TFNodeContext:
    return TFNodeContext(executor_id=3, role=role, index=index, cluster_spec=cluster_seen_by(role, SPEC), **settings)


@pytest.mark.parametrize("role", [Role.CHIEF, Role.WORKER, Role.PS])
def test_the_evaluator_is_no_part_of_the_cluster_of_the_others(role: Role) -> None:
    assert context(role).cluster_spec == {name: hosts for name, hosts in SPEC.items() if name != "evaluator"}


def test_an_evaluator_knows_its_own_address_and_those_of_the_others() -> None:
    assert context(Role.EVALUATOR).cluster_spec == SPEC


@pytest.mark.parametrize("role", [Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR])
def test_workers_are_counted_with_the_chief_and_without_ps_and_evaluator(role: Role) -> None:
    assert context(role).num_workers == 3


def test_the_chief_comes_first_among_those_that_train() -> None:
    assert [context(Role.CHIEF).worker_index, context(Role.WORKER).worker_index, context(Role.WORKER, 1).worker_index] == [0, 1, 2]


@pytest.mark.parametrize("role", [Role.PS, Role.EVALUATOR])
def test_a_node_that_does_not_train_has_no_place_among_the_workers(role: Role) -> None:
    with pytest.raises(ClusterStateError, match=f"{role}:0 does not train"):
        assert context(role).worker_index


def test_an_evaluator_starts_no_server() -> None:
    reports: list[Any] = []
    with pytest.raises(ClusterStateError, match="evaluator:0 is not part of the training cluster"):
        context(Role.EVALUATOR, report=reports.append).start_cluster_server()
    assert reports == [], "the driver is not told of a server that does not exist"
