"""The resolved job that the CLI hands to the driver shim, as one JSON document.

Validation is finished when a plan exists; the shim only follows it. It carries no secret values: `secrets` are names of environment
variables of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from tfos_core.feed.keeping import DEFAULT_DISK_BYTES, DEFAULT_MEMORY_BYTES, NodeCache
from tfos_core.json_text import parse_json
from tfos_core.tensorboard.options import TensorBoardOptions

__all__ = ("DataPlan", "FunctionRef", "InferPlan", "JobPlan", "ProbePlan", "RemotePlan", "StreamPlan")

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRef:
    """A function by the module it is imported from on the driver and on executors; `shown` is what the spec says."""

    module: str
    function: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """What is fed in `input_mode: spark`, and what `ctx` may read in `tensorflow` mode; `path` is absolute or has a scheme."""

    path: str | None = None
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    input_mapping: Mapping[str, str] | None = None
    transform: FunctionRef | None = None
    source: FunctionRef | None = None
    cache: Literal["none", "node"] = "none"
    cache_memory_bytes: int = DEFAULT_MEMORY_BYTES
    cache_disk_bytes: int = DEFAULT_DISK_BYTES
    cache_shuffle: bool = False
    cache_seed: int = 0

    @property
    def node_cache(self) -> NodeCache | None:
        """What nodes keep, if they do."""
        if self.cache == "none":
            return None
        return NodeCache(
            memory_bytes=self.cache_memory_bytes,
            disk_bytes=self.cache_disk_bytes,
            shuffle=self.cache_shuffle,
            seed=self.cache_seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InferPlan:
    """Rows that are answered, by a saved model or without `export_dir` by the entrypoint; paths are absolute or have a scheme."""

    output: str
    output_format: str = "parquet"
    output_mode: Literal["error", "overwrite", "append"] = "error"
    export_dir: str | None = None
    signature_def_key: str = "serving_default"
    tag_set: str = "serve"
    input_mapping: Mapping[str, str] = field(default_factory=dict)
    output_mapping: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 128
    keep: tuple[str, ...] = ()
    binary_outputs: tuple[str, ...] = ()
    bad_rows: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What is fed until it is stopped; paths are absolute or have a scheme, `interval` is in seconds."""

    source: Literal["files", "socket"]
    path: str | None = None
    format: str = "text"
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    transform: FunctionRef | None = None
    host: str | None = None
    port: int | None = None
    interval: float = 10
    max_files: int | None = None
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """What `tfos env-check` tries instead of running the job: `entrypoint` is `module:function`, the paths are the spec's."""

    entrypoint: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlan:
    """How a driver on the cluster (cluster deploy mode) is heard by the machine that submitted it.

    `record` is the URL of a folder that both reach, `submitted` the time of day in seconds. `heeds_signals` says that SIGTERM means
    that somebody wants the run to end; on YARN it is also how a container is killed that took too much memory.
    """

    record: str
    master: str
    submitted: float
    heeds_signals: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """Everything the shim needs. Times are in seconds, `num_nodes` counts TensorFlow nodes (driver ps included).

    `base_dir` is the folder that relative paths of the program start from: the spec's.
    """

    run_id: str
    name: str
    run_folder: str
    channel: str | None
    entrypoint: FunctionRef | None
    args: Mapping[str, Any] | tuple[str, ...]
    input_mode: Literal["spark", "tensorflow"]
    mode: Literal["cluster", "parallel"] = "cluster"
    num_nodes: int
    num_ps: int = 0
    master_node: str | None = None
    eval_node: bool = False
    driver_ps_nodes: bool = False
    release_port: bool = True
    reservation_timeout: float = 600
    feed_timeout: float = 600
    num_epochs: int = 1
    equal_steps: bool = False
    max_restarts: int = 0
    grace_secs: float = 0
    shutdown_timeout: float = 259200
    keras: Literal["legacy", "keras3"] = "keras3"
    gpus: int = 0
    gpu_source: Literal["auto", "spark", "nvidia-smi"] = "auto"
    tensorboard: TensorBoardOptions = field(default_factory=TensorBoardOptions)
    log_dir: str | None = None
    data: DataPlan | None = None
    infer: InferPlan | None = None
    base_dir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    detached: bool = False
    probe: ProbePlan | None = None
    stream: StreamPlan | None = None
    remote: RemotePlan | None = None

    def to_json(self) -> str:
        """One JSON document with a version."""
        return json.dumps({"v": VERSION} | asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        """Read what `to_json` wrote.

        Raises:
            ValueError: not a plan of this version.
        """
        data = parse_json(text)
        if data.pop("v", None) != VERSION:
            raise ValueError(f"the job plan is not of version {VERSION}: use the same tfos on both sides")
        data["entrypoint"] = FunctionRef(**data["entrypoint"]) if data["entrypoint"] else None
        data["tensorboard"] = TensorBoardOptions(**data["tensorboard"])
        if isinstance(data["args"], list):
            data["args"] = tuple(data["args"])
        data["secrets"] = tuple(data["secrets"])
        if data["data"] is not None:
            plan = dict(data["data"])
            for name in ("transform", "source"):
                plan[name] = FunctionRef(**plan[name]) if plan[name] else None
            plan["columns"] = tuple(plan["columns"]) if plan["columns"] is not None else None
            data["data"] = DataPlan(**plan)
        if data["infer"] is not None:
            names = {name: tuple(data["infer"][name]) for name in ("keep", "binary_outputs")}
            data["infer"] = InferPlan(**data["infer"] | names)
        if data.get("stream") is not None:
            stream = dict(data["stream"])
            stream["transform"] = FunctionRef(**stream["transform"]) if stream["transform"] else None
            stream["columns"] = tuple(stream["columns"]) if stream["columns"] is not None else None
            data["stream"] = StreamPlan(**stream)
        if data.get("probe") is not None:
            found = data["probe"]
            data["probe"] = ProbePlan(entrypoint=found["entrypoint"], reads=tuple(found["reads"]), writes=tuple(found["writes"]))
        if data.get("remote") is not None:
            data["remote"] = RemotePlan(**data["remote"])
        return cls(**{f.name: data[f.name] for f in fields(cls)})
