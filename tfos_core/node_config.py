"""What a node's supervisor is told by the node task, as one JSON message over a socket pair."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from tfos_core.gpu_request import GpuRequest
from tfos_core.settings import COLLECT_INTERVAL_S, DEFAULT_FEED_BUDGET_BYTES, EXIT_LIMIT_S
from tfos_core.tensorboard.options import is_out_of_reach, log_base, node_folder
from tfos_core.topology import InputMode, NodeSlot, Role

__all__ = ("ClusterConfig", "NodeConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The same for every node of a cluster. `secret` is hidden from repr; the object travels through Spark's own channel."""

    run_id: str
    generation: str
    server_host: str
    server_port: int
    secret: str = field(repr=False)
    has_user_secrets: bool
    input_mode: InputMode
    reservation_timeout: float
    release_port: bool
    environment: Mapping[str, str]
    keras: str | None
    threads: int | None
    default_fs: str
    num_epochs: int
    data: Mapping[str, Any]
    log_dir: str | None
    base_dir: str | None = None
    feed_budget_bytes: int = DEFAULT_FEED_BUDGET_BYTES
    tensorboard_node: str = ""
    tensorboard_port: int = 0
    tensorboard_bind: Literal["node", "loopback"] = "node"
    collects_files: bool = False
    collect_interval_s: float = COLLECT_INTERVAL_S
    gpus: GpuRequest = field(default_factory=GpuRequest)
    independent: bool = False
    equal_steps: bool = False
    restart_count: int = 0
    first_epoch: int = 0
    exit_limit_s: float = EXIT_LIMIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node: the cluster's configuration, its slot, and where its task runs."""

    cluster: ClusterConfig
    slot: NodeSlot
    jvm_pid: int
    jvm_started: int
    working_dir: str
    python: str
    python_path: str
    #: What CUDA_VISIBLE_DEVICES names: the GPUs that the node has taken.
    gpus: tuple[str, ...] = ()
    #: How many independent instances there are; 0 for a node of a cluster.
    instances: int = 0

    @property
    def name(self) -> str:
        """`role:index`."""
        return self.slot.name

    @property
    def is_fed(self) -> bool:
        """Whether Spark's rows come to this node."""
        return self.cluster.input_mode is InputMode.SPARK and self.slot.role.is_fed

    @property
    def runs_tensorboard(self) -> bool:
        """Whether TensorBoard runs beside this node."""
        return self.cluster.tensorboard_node == self.name

    @property
    def log_base(self) -> str | None:
        """The folder or URL that TensorBoard shows; None when nobody asked for one."""
        cluster = self.cluster
        if cluster.log_dir is None and not cluster.tensorboard_node and not cluster.collects_files:
            return None
        own = cluster.log_dir is None or is_out_of_reach(cluster.log_dir)
        folder = self.working_dir if own else cluster.base_dir or self.working_dir
        return log_base(cluster.log_dir, working_dir=folder, generation=cluster.generation)

    @property
    def log_dir(self) -> str | None:
        """This node's own folder below `log_base`: what `ctx.log_dir` says."""
        base = self.log_base
        return None if base is None else posixpath.join(base, node_folder(self.slot))

    @property
    def mirror_dir(self) -> str | None:
        """Where this node's event files are copied to, when `log_dir` of the job is out of TensorFlow's reach."""
        log_dir = self.cluster.log_dir
        return posixpath.join(log_dir, node_folder(self.slot)) if log_dir is not None and is_out_of_reach(log_dir) else None

    @property
    def holds_task(self) -> bool:
        """Whether the node's Spark task lasts as long as the node; fed nodes give the slot back to feed tasks."""
        return not self.is_fed

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NodeConfig:
        """The reverse of `to_dict`, after a trip through JSON."""
        values = {f.name: data[f.name] for f in fields(cls)}
        cluster = dict(values["cluster"])
        cluster["input_mode"] = InputMode(cluster["input_mode"])
        cluster["gpus"] = GpuRequest.from_dict(cluster["gpus"])
        values["gpus"] = tuple(values["gpus"])
        slot = dict(values["slot"])
        slot["role"] = Role(slot["role"])
        values["cluster"] = ClusterConfig(**cluster)
        values["slot"] = NodeSlot(**slot)
        return cls(**values)
