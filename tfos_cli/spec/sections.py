"""The sections of a job spec: one closed, frozen model each. Every field states its unit, its default and what null means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from tfos_cli.spec.values import LONGEST_SECONDS, Memory, Seconds, Text, TextMap, Texts, VariableName, show_number

__all__ = (
    "Data",
    "DataFormat",
    "Environment",
    "Gpus",
    "Infer",
    "InferOutput",
    "Restart",
    "Section",
    "Spark",
    "Stream",
    "TensorBoard",
    "expand_shorthand",
)

DataFormat = Literal["csv", "json", "parquet", "orc", "text", "tfrecord"]
Pause = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False), PlainSerializer(show_number)]


class Section(BaseModel):
    """Closed: a key that is not declared is an error. Strict: text is not taken for a number, nor a number for a boolean."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Gpus(Section):
    """GPUs of every node that trains (`gpus: 1` is short for `gpus: {per_node: 1}`)."""

    per_node: int = Field(
        default=0, ge=0, le=1024, description="Number of GPUs per node; ps and evaluator nodes take none. Default 0."
    )
    source: Literal["auto", "spark", "nvidia-smi"] = Field(
        default="auto",
        description="Who hands them out: `spark` (resource scheduling), `nvidia-smi` (the nodes of a host look for free ones), or "
        "`auto`: Spark on Standalone, YARN and Kubernetes, nvidia-smi on this machine. Default `auto`.",
    )


class TensorBoard(Section):
    """TensorBoard beside the chief (`tensorboard: true` is short for `tensorboard: {enabled: true}`)."""

    enabled: bool = Field(default=False, description="Whether TensorBoard runs with the job. Default false.")
    log_dir: str | None = Field(
        default=None, description="Folder or URL that it shows; nodes write below it. Default null: a folder of the run."
    )
    port: int = Field(
        default=0, ge=0, le=65535, description="TCP port. Default 0: `TENSORBOARD_PORT` of the node, or any free one."
    )
    bind: Literal["node", "loopback"] = Field(
        default="node",
        description="Address that it listens on: the node's own, or loopback only. It has no login. Default `node`.",
    )
    keep_secs: Pause = Field(default=0, description="Seconds that it stays up after a good end. Default 0.")
    collect: bool = Field(
        default=True,
        description="Whether event files of all nodes are copied into the run record while the job runs and at its end, also when "
        "TensorBoard is off. Default true.",
    )


class Data(Section):
    """What is read. In `input_mode: spark` the driver reads it and feeds the nodes; in `tensorflow` mode nodes read `path`."""

    path: str | None = Field(
        default=None,
        description="File, folder or glob, relative to the spec, or a URL such as `hdfs://...`. Default null: `source` gives rows.",
    )
    format: DataFormat | None = Field(default=None, description="Format of `path`. Default null: by the file name's ending.")
    options: TextMap = Field(
        default_factory=dict,
        description="Options of Spark's reader, such as `header: true`; `schema` is that of the rows, as in `id bigint, x float`. "
        "Default {}.",
    )
    columns: Texts | None = Field(
        default=None, description="Columns that are fed, or read by `ctx.dataset`, in this order. Default null: all."
    )
    input_mapping: dict[str, str] | None = Field(
        default=None,
        description="Column to tensor name: batches are mappings, of these columns only. Default null: batches are lists of rows.",
    )
    transform: str | None = Field(
        default=None,
        description="`FILE.py:function` or `package.module:function` taking (spark, df, args), returning a DataFrame or an RDD; "
        "runs on the driver. Default null.",
    )
    source: str | None = Field(
        default=None,
        description="Instead of `path`: `FILE.py:function` taking (spark, args), returning a DataFrame or an RDD. Default null.",
    )
    cache: Literal["none", "node"] = Field(
        default="none", description="`node`: epochs after the first come from a cache on each node. Default `none`."
    )
    cache_memory: Memory = Field(
        default="256m", description="Rows that each node keeps in memory for `cache: node`, with unit. Default 256m."
    )
    cache_disk: Memory | None = Field(
        default="10g",
        description="Rows beyond `cache_memory` that each node keeps in a file of the executor's local folder, with unit. Default "
        "10g; null: none. When rows do not fit, Spark feeds every epoch.",
    )
    cache_shuffle: bool = Field(
        default=False, description="Replay blocks of rows in another order in every epoch (`cache: node`). Default false."
    )
    cache_seed: int = Field(default=0, description="Seed of that order. Default 0.")


class Stream(Section):
    """A stream of rows instead of `data` (`input_mode: spark`)."""

    source: Literal["files", "socket"] = Field(description="`files`: new files in a folder; `socket`: lines from a TCP server.")
    path: str | None = Field(default=None, description="Folder that is watched (`source: files`). Default null.")
    format: Literal["text", "csv", "json", "parquet"] = Field(default="text", description="Format of the files. Default `text`.")
    options: TextMap = Field(
        default_factory=dict,
        description="Options of Spark's reader, such as `header: true`; `schema` is that of the rows, as in `x float, y float`; "
        "without it, that of the files that are there at the start. Default {}.",
    )
    columns: Texts | None = Field(default=None, description="Columns that are fed, in this order. Default null: all.")
    transform: str | None = Field(
        default=None,
        description="`FILE.py:function` or `package.module:function` taking (spark, df, args) with a streaming DataFrame, and "
        "returning one; runs once, on the driver. Default null.",
    )
    host: str | None = Field(default=None, description="Host of the server (`source: socket`). Default null.")
    port: int | None = Field(default=None, ge=1, le=65535, description="Port of the server (`source: socket`). Default null.")
    interval: Seconds = Field(default=10, description="Seconds between batches. Default 10.")
    max_files: int | None = Field(default=None, ge=1, description="Most files in one batch. Default null: no limit.")
    checkpoint: str | None = Field(
        default=None,
        description="Folder or URL where Spark notes what was fed; a later run with the same one goes on there. Default null: in "
        "the run record.",
    )


class InferOutput(Section):
    """Where predictions go."""

    path: str = Field(min_length=1, description="Folder or URL, relative to the spec.")
    format: DataFormat = Field(default="parquet", description="Format that is written. Default `parquet`.")
    mode: Literal["error", "overwrite", "append"] = Field(
        default="error",
        description="When the output exists: `error` refuses, `overwrite` replaces it at the end, `append` adds files. "
        "Default `error`.",
    )


class Infer(Section):
    """Batch inference (`tfos infer`): with a saved model, or without `export_dir` with the entrypoint on a cluster's nodes."""

    export_dir: str | None = Field(
        default=None,
        min_length=1,
        description="SavedModel folder or `.keras` file, relative to the spec, or a URL. Default null: the entrypoint answers the "
        "rows, and of this section only `output` counts.",
    )
    signature_def_key: str = Field(default="serving_default", description="Signature that is called. Default `serving_default`.")
    tag_set: str = Field(default="serve", description="Tags of the graph, separated by commas. Default `serve`.")
    input_mapping: dict[str, str] = Field(
        default_factory=dict,
        description="Column to input name; several columns of one input are put side by side. Default {}: by equal names, or "
        "the only column that is not kept to the only input.",
    )
    output_mapping: dict[str, str] = Field(default_factory=dict, description="Output name to column. Default {}: all outputs.")
    batch_size: int = Field(default=128, ge=1, le=1 << 30, description="Rows per call of the model. Default 128.")
    keep: Texts = Field(default=(), description="Input columns that are written beside the predictions. Default [].")
    binary_outputs: Texts = Field(default=(), description="Outputs of type string that are bytes, not text. Default [].")
    bad_rows: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or URL for rows that the model rejects, with the reason, as Parquet. Default null: such a row ends the "
        "job.",
    )
    output: InferOutput = Field(description="Where predictions go.")


class Environment(Section):
    """The Python environment and the environment variables of the driver and of every node."""

    pack: str = Field(
        default="none",
        min_length=1,
        description="Python environment that travels with the job: `none`, `venv`, `conda`, or the path of a packed archive. "
        "Default `none`: executors have Python and TensorFlow.",
    )
    pack_level: int = Field(
        default=1,
        ge=0,
        le=9,
        description="How much a packed `venv` or `conda` is compressed, 0 (not at all) to 9. Default 1: the others take longer.",
    )
    vars: dict[VariableName, Text] = Field(
        default_factory=dict, description="Environment variables of driver and nodes. Default {}."
    )
    secrets: Annotated[tuple[VariableName, ...], Field(strict=False)] = Field(
        default=(),
        description="Names (only names) of environment variables whose values go to the nodes on the authenticated channel and are "
        "never printed. Default [].",
    )


class Restart(Section):
    """What happens after an infrastructure failure (exit code 7)."""

    max_restarts: int = Field(default=0, ge=0, le=1000, description="How often the job is started again. Default 0.")


class Spark(Section):
    """How the job is submitted."""

    master: str | None = Field(
        default=None,
        min_length=1,
        description="Spark master URL. Default null: `num_executors` executor processes on this machine.",
    )
    deploy_mode: Literal["client", "cluster"] = Field(default="client", description="Where the driver runs. Default `client`.")
    executor_cores: int = Field(
        default=1, ge=1, le=4096, description="Cores of an executor; feed tasks use all of them. Default 1."
    )
    executor_memory: Memory = Field(default="1g", description="JVM heap of an executor, with unit (k, m, g, t). Default 1g.")
    executor_memory_overhead: Memory | None = Field(
        default=None,
        description="Memory of an executor outside the JVM heap, where TensorFlow lives, with unit. Default null: on YARN and "
        "Kubernetes the larger of 2g and half of `executor_memory`, and 768m for TensorBoard, computed and shown; elsewhere Spark "
        "has no such limit.",
    )
    driver_memory: Memory = Field(default="1g", description="JVM heap of the driver, with unit. Default 1g.")
    queue: str | None = Field(default=None, min_length=1, description="YARN queue. Default null: the cluster's default queue.")
    conf: TextMap = Field(default_factory=dict, description="Spark properties, as `--conf` of spark-submit. Default {}.")
    jars: Texts = Field(default=(), description="Jars for driver and executors, as `--jars`. Default [].")
    packages: Texts = Field(default=(), description="Maven coordinates, as `--packages`. Default [].")
    py_files: Texts = Field(default=(), description="Python files and zips for the executors, as `--py-files`. Default [].")
    files: Texts = Field(default=(), description="Files for the executors' working folders, as `--files`. Default [].")
    archives: Texts = Field(default=(), description="Archives that are unpacked there, as `--archives`. Default [].")


def expand_shorthand(key: str, value: object) -> Any:
    """`gpus: 1` and `tensorboard: true` as the mappings that they are short for; everything else as it is."""
    if key == "gpus" and isinstance(value, int) and not isinstance(value, bool):
        return {"per_node": value}
    if key == "tensorboard" and isinstance(value, bool):
        return {"enabled": value}
    return value


def _expand_gpus(value: object) -> Any:
    return expand_shorthand("gpus", value)


def _expand_tensorboard(value: object) -> Any:
    return expand_shorthand("tensorboard", value)


GpusField = Annotated[Gpus, BeforeValidator(_expand_gpus, json_schema_input_type=Annotated[int, Field(ge=0)] | Gpus)]
TensorBoardField = Annotated[TensorBoard, BeforeValidator(_expand_tensorboard, json_schema_input_type=bool | TensorBoard)]
