"""Which node of a cluster plays which role: pure, knows neither Spark nor sockets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tfos_core.errors import TopologyError

__all__ = ("ClusterPlan", "InputMode", "NodeSlot", "Role", "cluster_seen_by", "cluster_spec", "tf_config")


class InputMode(StrEnum):
    """Where a node's rows come from: its own reading (TENSORFLOW), or Spark's partitions (SPARK)."""

    TENSORFLOW = "tensorflow"
    SPARK = "spark"


class Role(StrEnum):
    """A task type of `TF_CONFIG`."""

    CHIEF = "chief"
    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"

    @property
    def is_fed(self) -> bool:
        """Whether nodes of this role receive Spark's rows in `InputMode.SPARK`."""
        return self in (Role.CHIEF, Role.MASTER, Role.WORKER)

    @property
    def is_serving(self) -> bool:
        """Whether nodes of this role wait for others and are stopped when those are done."""
        return self in (Role.PS, Role.EVALUATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSlot:
    """One planned node: `executor_id` is its position in the cluster, from 0."""

    executor_id: int
    role: Role
    index: int
    on_driver: bool = False

    @property
    def name(self) -> str:
        """`role:index`, as in `worker:0`."""
        return f"{self.role}:{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """All nodes of a cluster, in the order of their executor ids."""

    slots: tuple[NodeSlot, ...]

    @classmethod
    def build(
        cls,
        num_nodes: int,
        *,
        num_ps: int = 0,
        master_node: str | None = None,
        eval_node: bool = False,
        driver_ps_nodes: bool = False,
    ) -> ClusterPlan:
        """Hand out roles: ps first, then chief or master, evaluator, and workers for what is left.

        Args:
            num_nodes: TensorFlow nodes in all, those on the driver included.
            master_node: `chief`, `master` or None.
            driver_ps_nodes: whether the ps run on the driver and take no executor.

        Raises:
            TopologyError: a count is negative, the role is unknown, or no chief, master or worker is left.
        """
        if num_nodes < 1:
            raise TopologyError(f"num_executors is {num_nodes}, but a cluster has at least one node", "Ask for 1 or more.")
        if num_ps < 0:
            raise TopologyError(f"num_ps is {num_ps}, but a number of nodes can not be negative", "Use 0 for no ps.")
        if master_node not in (None, Role.CHIEF, Role.MASTER):
            raise TopologyError(f"master_node is {master_node!r}", "Use 'chief', 'master' or None.")
        roles: list[Role] = [Role.PS] * num_ps
        roles += [Role(master_node)] if master_node else []
        roles += [Role.EVALUATOR] if eval_node else []
        workers = num_nodes - len(roles)
        if workers < 0 or (workers == 0 and master_node is None):
            asked = ", ".join(
                filter(None, [f"{num_ps} ps" if num_ps else "", master_node or "", "1 evaluator" if eval_node else ""])
            )
            least = len(roles) + (0 if master_node else 1)
            raise TopologyError(
                f"{num_nodes} nodes leave no worker beside {asked}",
                f"Set num_executors to at least {least}, or ask for fewer other roles.",
            )
        roles += [Role.WORKER] * workers
        counts: dict[Role, int] = {}
        slots = []
        for executor_id, role in enumerate(roles):
            index = counts.get(role, 0)
            counts[role] = index + 1
            slots.append(NodeSlot(executor_id=executor_id, role=role, index=index, on_driver=driver_ps_nodes and role is Role.PS))
        return cls(slots=tuple(slots))

    @property
    def on_executors(self) -> tuple[NodeSlot, ...]:
        """The nodes that take an executor each."""
        return tuple(slot for slot in self.slots if not slot.on_driver)

    @property
    def on_driver(self) -> tuple[NodeSlot, ...]:
        """The nodes that run beside the driver and take no executor."""
        return tuple(slot for slot in self.slots if slot.on_driver)

    @property
    def fed(self) -> tuple[NodeSlot, ...]:
        """The nodes that receive rows in `InputMode.SPARK`."""
        return tuple(slot for slot in self.slots if slot.role.is_fed)

    def describe(self) -> str:
        """For people: `1 chief, 2 workers`."""
        counts: dict[Role, int] = {}
        for slot in self.slots:
            counts[slot.role] = counts.get(slot.role, 0) + 1
        plural = {Role.WORKER: "workers"}
        return ", ".join(f"{n} {plural.get(role, role) if n > 1 else role}" for role, n in counts.items())


def cluster_spec(addresses: Iterable[tuple[Role, int, str]]) -> dict[str, list[str]]:
    """`{role: [host:port, ...]}` in index order, from (role, index, host:port) of every node."""
    spec: dict[str, list[str]] = {}
    for role, _, address in sorted(addresses, key=lambda entry: (entry[0], entry[1])):
        spec.setdefault(str(role), []).append(address)
    return spec


def cluster_seen_by(role: Role, spec: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The cluster as a node of this role knows it.

    The evaluator is not part of the training cluster, so only an evaluator sees itself there
    (https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver): the others would wait
    for a server that it never starts.
    """
    return {name: list(hosts) for name, hosts in spec.items() if name != Role.EVALUATOR or role is Role.EVALUATOR}


def tf_config(spec: Mapping[str, list[str]], role: Role, index: int) -> str:
    """The value of `TF_CONFIG` for one node."""
    cluster = cluster_seen_by(role, spec)
    return json.dumps({"cluster": cluster, "task": {"type": str(role), "index": index}, "environment": "cloud"})
