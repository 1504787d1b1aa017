"""`JobSpec`: what a spec file says, validated. Knows nothing about files, lines or where a value came from."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field

from tfos_cli.spec.sections import (
    Data,
    DataFormat,
    Environment,
    Gpus,
    GpusField,
    Infer,
    InferOutput,
    Pause,
    Restart,
    Section,
    Spark,
    Stream,
    TensorBoard,
    TensorBoardField,
)
from tfos_cli.spec.values import Args, Seconds, expected
from tfos_core.topology import ClusterPlan

__all__ = (
    "Data",
    "DataFormat",
    "Environment",
    "Gpus",
    "Infer",
    "InferOutput",
    "JobSpec",
    "Restart",
    "Section",
    "Spark",
    "Stream",
    "TensorBoard",
)

NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
MOST_NODES = 10_000

_NAME = re.compile(NAME_PATTERN.removesuffix("$") + r"\Z")


def _check_name(value: object) -> object:
    if not isinstance(value, str) or not _NAME.match(value):
        raise expected("1 to 63 lower-case letters, digits and '-', a letter first and no '-' at the end")
    return value


Name = Annotated[str, BeforeValidator(_check_name), Field(json_schema_extra={"pattern": NAME_PATTERN})]


class JobSpec(Section):
    """A job: one program or model, the cluster it wants, its data, and how Spark starts it."""

    # The rules say the same with better words; this is for editors.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["entrypoint"]},
                {"required": ["infer"], "properties": {"infer": {"type": "object", "required": ["export_dir"]}}},
            ]
        }
    )

    name: Name = Field(description="Name of the job: letters, digits and '-', at most 63. Required.")
    entrypoint: str | None = Field(
        default=None,
        min_length=1,
        description="`FILE.py:function` (file relative to the spec) or `package.module:function`, taking (args, ctx). Required "
        "unless `infer.export_dir` is set. Default null.",
    )
    args: Args = Field(
        default_factory=dict,
        description="First argument of the entrypoint: a mapping becomes an argparse.Namespace, a list of texts argv. Default {}.",
    )
    mode: Literal["cluster", "parallel"] = Field(
        default="cluster", description="`cluster`: one TensorFlow cluster; `parallel`: independent instances. Default `cluster`."
    )
    input_mode: Literal["spark", "tensorflow"] = Field(
        default="spark",
        description="`spark`: Spark reads `data` and feeds it to the nodes; `tensorflow`: nodes read for themselves. "
        "Default `spark`.",
    )
    num_executors: int = Field(
        default=1,
        ge=1,
        le=MOST_NODES,
        description="Number of Spark executors, one TensorFlow node on each; ps on the driver come on top. Default 1.",
    )
    num_ps: int = Field(default=0, ge=0, le=MOST_NODES, description="Number of parameter servers among the nodes. Default 0.")
    master_node: Literal["chief", "master"] | None = Field(
        default="chief", description="Role of the node that leads: `chief`, `master`, or null for workers only. Default `chief`."
    )
    eval_node: bool = Field(default=False, description="Whether one node is an evaluator (tensorflow mode). Default false.")
    driver_ps_nodes: bool = Field(
        default=False, description="Whether ps run on the driver and take no executor (tensorflow mode). Default false."
    )
    release_port: bool = Field(
        default=True,
        description="Whether a node's port is released before the entrypoint runs; else it calls ctx.release_port(). Default true.",
    )
    reservation_timeout: Seconds = Field(default=600, description="Seconds until every node has registered. Default 600.")
    feed_timeout: Seconds = Field(
        default=600, description="Seconds without a row consumed on a node before feeding fails. Default 600."
    )
    num_epochs: int = Field(default=1, ge=1, le=1_000_000_000, description="How often the data is fed. Default 1.")
    grace_secs: Pause = Field(
        default=0, description="Seconds that an evaluator may go on after the others, to export its last result. Default 0."
    )
    shutdown_timeout: Seconds = Field(
        default=259200,
        description="Seconds that nodes may go on after the last row before the job fails. Default 259200 (three days).",
    )
    gpus: GpusField = Field(default_factory=Gpus, description="GPUs per node, or a mapping. Default 0.")
    tensorboard: TensorBoardField = Field(
        default_factory=TensorBoard, description="Whether TensorBoard runs with the job, or a mapping. Default false."
    )
    keras: Literal["auto", "legacy", "keras3"] = Field(
        default="auto",
        description="`legacy` (package tf_keras), `keras3`, or `auto`: legacy when tf_keras of TensorFlow's minor version is "
        "installed and the cluster has more than one node, else keras3. Default `auto`.",
    )
    equal_steps: bool = Field(
        default=False,
        description="Whether `as_dataset` gives all nodes the same number of whole batches, rows left over dropped. Default false.",
    )
    data: Data | None = Field(default=None, description="What is read. Default null.")
    stream: Stream | None = Field(default=None, description="A stream of rows instead of `data`. Default null.")
    infer: Infer | None = Field(default=None, description="Batch inference (`tfos infer`). Default null.")
    environment: Environment = Field(default_factory=Environment, description="Python environment and environment variables.")
    restart: Restart = Field(default_factory=Restart, description="What happens after an infrastructure failure.")
    spark: Spark = Field(default_factory=Spark, description="How the job is submitted.")

    @property
    def num_nodes(self) -> int:
        """TensorFlow nodes in all: the executors, and ps on the driver on top."""
        return self.num_executors + (self.num_ps if self.driver_ps_nodes else 0)

    @property
    def is_parallel(self) -> bool:
        """Whether the job is independent instances instead of one cluster."""
        return self.mode == "parallel"

    def cluster_plan(self) -> ClusterPlan:
        """The nodes of the job; of a parallel job, its instances.

        Raises:
            TopologyError: the roles do not add up.
        """
        if self.is_parallel:
            return ClusterPlan.build(self.num_executors)
        return ClusterPlan.build(
            self.num_nodes,
            num_ps=self.num_ps,
            master_node=self.master_node,
            eval_node=self.eval_node,
            driver_ps_nodes=self.driver_ps_nodes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values in the order of the fields; `from_dict` takes them back."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The spec of plain values.

        Raises:
            pydantic.ValidationError: an unknown key or a wrong value; `load_spec` turns it into a SpecError with file and line.
        """
        return cls.model_validate(data)
