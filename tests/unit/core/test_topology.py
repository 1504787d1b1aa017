"""Which node plays which role."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.errors import ConfigError, TopologyError
from tfos_core.topology import ClusterPlan, InputMode, Role, cluster_spec, tf_config


def names(plan: ClusterPlan) -> list[str]:
    return [slot.name for slot in plan.slots]


def test_ps_come_first_then_the_chief_then_the_evaluator_then_workers() -> None:
    plan = ClusterPlan.build(6, num_ps=2, master_node="chief", eval_node=True)
    assert names(plan) == ["ps:0", "ps:1", "chief:0", "evaluator:0", "worker:0", "worker:1"]
    assert [slot.executor_id for slot in plan.slots] == [0, 1, 2, 3, 4, 5]


def test_without_a_chief_all_nodes_are_workers() -> None:
    assert names(ClusterPlan.build(3)) == ["worker:0", "worker:1", "worker:2"]


def test_a_chief_alone_is_a_cluster() -> None:
    assert names(ClusterPlan.build(1, master_node="chief")) == ["chief:0"]


def test_a_master_is_fed_as_a_chief_is() -> None:
    plan = ClusterPlan.build(4, num_ps=1, master_node="master", eval_node=True)
    assert [slot.name for slot in plan.fed] == ["master:0", "worker:0"]


def test_ps_on_the_driver_take_no_executor() -> None:
    plan = ClusterPlan.build(3, num_ps=1, driver_ps_nodes=True)
    assert [slot.name for slot in plan.on_executors] == ["worker:0", "worker:1"]
    assert [slot.name for slot in plan.slots if slot.on_driver] == ["ps:0"]


def test_only_ps_go_to_the_driver() -> None:
    plan = ClusterPlan.build(4, num_ps=1, master_node="chief", eval_node=True, driver_ps_nodes=True)
    assert {slot.role for slot in plan.slots if slot.on_driver} == {Role.PS}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_nodes": 0}, "num_executors is 0"),
        ({"num_nodes": -2}, "num_executors is -2"),
        ({"num_nodes": 2, "num_ps": -1}, "num_ps is -1"),
        ({"num_nodes": 2, "num_ps": 2}, "2 nodes leave no worker beside 2 ps"),
        ({"num_nodes": 1, "eval_node": True}, "1 nodes leave no worker beside 1 evaluator"),
        ({"num_nodes": 2, "num_ps": 1, "master_node": "chief", "eval_node": True}, "beside 1 ps, chief, 1 evaluator"),
        ({"num_nodes": 2, "master_node": "boss"}, "master_node is 'boss'"),
    ],
)
def test_roles_that_do_not_add_up_are_refused_with_the_numbers(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(TopologyError, match=said) as caught:
        ClusterPlan.build(**arguments)  # type: ignore[arg-type]
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint


def test_the_hint_names_the_smallest_number_that_works() -> None:
    with pytest.raises(TopologyError) as caught:
        ClusterPlan.build(2, num_ps=2, eval_node=True)
    assert caught.value.hint is not None
    assert "at least 4" in caught.value.hint
    assert len(ClusterPlan.build(4, num_ps=2, eval_node=True).fed) == 1


@given(
    workers=st.integers(0, 30),
    num_ps=st.integers(0, 10),
    master=st.sampled_from([None, "chief", "master"]),
    eval_node=st.booleans(),
    on_driver=st.booleans(),
)
def test_every_role_has_the_number_that_was_asked_and_names_are_unique(
    workers: int, num_ps: int, master: str | None, eval_node: bool, on_driver: bool
) -> None:
    if workers == 0 and master is None:
        workers = 1
    total = workers + num_ps + (master is not None) + eval_node
    plan = ClusterPlan.build(total, num_ps=num_ps, master_node=master, eval_node=eval_node, driver_ps_nodes=on_driver)
    roles = [slot.role for slot in plan.slots]
    assert (roles.count(Role.PS), roles.count(Role.EVALUATOR), roles.count(Role.WORKER)) == (num_ps, eval_node, workers)
    assert len(set(names(plan))) == total
    assert len(plan.on_executors) == total - (num_ps if on_driver else 0)
    assert len(plan.fed) == workers + (master is not None)


def test_a_plan_describes_itself_in_words() -> None:
    assert ClusterPlan.build(4, num_ps=1, master_node="chief").describe() == "1 ps, 1 chief, 2 workers"
    assert ClusterPlan.build(2, master_node="chief").describe() == "1 chief, 1 worker"


def test_a_cluster_spec_lists_addresses_by_index_however_nodes_registered() -> None:
    addresses = [(Role.WORKER, 1, "b:2"), (Role.CHIEF, 0, "c:3"), (Role.WORKER, 0, "a:1")]
    assert cluster_spec(addresses) == {"chief": ["c:3"], "worker": ["a:1", "b:2"]}


def test_a_cluster_spec_sorts_indexes_as_numbers() -> None:
    addresses = [(Role.WORKER, index, f"h:{index}") for index in reversed(range(12))]
    assert cluster_spec(addresses)["worker"] == [f"h:{index}" for index in range(12)]


def test_tf_config_tells_a_node_who_it_is() -> None:
    spec = {"chief": ["c:1"], "worker": ["w:1"]}
    config = json.loads(tf_config(spec, Role.WORKER, 0))
    assert config["task"] == {"type": "worker", "index": 0}
    assert config["cluster"] == spec


def test_only_the_evaluator_sees_itself_in_tf_config() -> None:
    spec = {"chief": ["c:1"], "evaluator": ["e:1"]}
    assert "evaluator" not in json.loads(tf_config(spec, Role.CHIEF, 0))["cluster"]
    assert "evaluator" in json.loads(tf_config(spec, Role.EVALUATOR, 0))["cluster"]


@pytest.mark.parametrize("role", list(Role))
def test_a_role_is_either_fed_or_serving(role: Role) -> None:
    assert role.is_fed != role.is_serving


def test_input_modes_are_the_words_of_the_spec() -> None:
    assert [str(mode) for mode in InputMode] == ["tensorflow", "spark"]
