"""A resolved spec as the plan that the driver shim follows. Pure."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_cli.spec.masters import MasterKind
from tfos_cli.spec.places import below
from tfos_cli.spec.values import memory_bytes
from tfos_cli.submit.properties import cluster_kind, is_on_this_machine
from tfos_cli.submit.references import Reference, references_of
from tfos_core.errors import ConfigError
from tfos_core.jobplan import DataPlan, InferPlan, JobPlan, RemotePlan, StreamPlan
from tfos_core.tensorboard.options import TensorBoardOptions

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("build_plan", "locate_data")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def build_plan(
    resolved: ResolvedSpec,
    *,
    run_id: str,
    run_folder: Path,
    channel: Path | None,
    detached: bool = False,
    record: str | None = None,
) -> JobPlan:
    """The plan of a run.

    Args:
        channel: the file that says how to reach the command line, None when nobody follows.
        detached: whether the run goes on when its follower goes away.
        record: where a driver on the cluster writes its record; None for one on this machine.

    Raises:
        ConfigError: the spec asks for something that does not exist yet, or names a function in a way that can not work.
    """
    spec = resolved.spec
    references = {reference.field: reference for reference in references_of(resolved)}
    return JobPlan(
        run_id=run_id,
        name=spec.name,
        run_folder=str(run_folder),
        channel=None if channel is None else str(channel),
        entrypoint=references["entrypoint"].to_plan() if "entrypoint" in references else None,
        args=spec.args,
        mode=spec.mode,
        input_mode="tensorflow" if spec.is_parallel else spec.input_mode,
        num_nodes=spec.num_nodes,
        num_ps=spec.num_ps,
        master_node=spec.master_node,
        eval_node=spec.eval_node,
        driver_ps_nodes=spec.driver_ps_nodes,
        release_port=spec.release_port,
        reservation_timeout=spec.reservation_timeout,
        feed_timeout=spec.feed_timeout,
        num_epochs=spec.num_epochs,
        equal_steps=spec.equal_steps,
        max_restarts=spec.restart.max_restarts,
        grace_secs=spec.grace_secs,
        shutdown_timeout=spec.shutdown_timeout,
        keras=resolved.keras.keras,
        gpus=spec.gpus.per_node,
        gpu_source=spec.gpus.source,
        tensorboard=_tensorboard(resolved),
        log_dir=_log_dir(resolved, run_folder),
        data=_data(resolved, references),
        infer=_infer(resolved),
        base_dir=str(resolved.folder),
        environment=spec.environment.vars,
        secrets=spec.environment.secrets,
        detached=detached,
        stream=_stream(resolved, references, f"file://{run_folder}" if record is None else record),
        remote=None if record is None else _remote(resolved, record),
    )


def locate_data(resolved: ResolvedSpec, path: str) -> str:
    """A path of the spec as Spark on that cluster reads it.

    Relative paths are below the spec's folder. On YARN and Kubernetes a path without a scheme belongs to the cluster's default
    file system, mostly HDFS, so that a local one must say that it is local; an absolute path is left to mean what it means there.
    """
    if _URL.match(path) or path.startswith("/"):
        return path
    local = str(below(resolved.folder, path))
    on_default_filesystem = cluster_kind(resolved.spec) in (MasterKind.YARN, MasterKind.KUBERNETES)
    return f"file://{local}" if on_default_filesystem else local


def _data(resolved: ResolvedSpec, references: dict[str, Reference]) -> DataPlan | None:
    data = resolved.spec.data
    if data is None:
        return None
    fed = resolved.model_inference is not None or (resolved.spec.input_mode == "spark" and not resolved.spec.is_parallel)
    if data.path is not None and resolved.data_format is None and fed:
        raise ConfigError(f"the format of data.path {data.path!r} can not be told from its name", "Set data.format.")
    transform, source = references.get("data.transform"), references.get("data.source")
    return DataPlan(
        path=None if data.path is None else locate_data(resolved, data.path),
        format=resolved.data_format,
        options=data.options,
        columns=data.columns,
        input_mapping=data.input_mapping,
        transform=transform.to_plan() if transform else None,
        source=source.to_plan() if source else None,
        cache=data.cache,
        cache_memory_bytes=memory_bytes(data.cache_memory),
        cache_disk_bytes=0 if data.cache_disk is None else memory_bytes(data.cache_disk),
        cache_shuffle=data.cache_shuffle,
        cache_seed=data.cache_seed,
    )


def _infer(resolved: ResolvedSpec) -> InferPlan | None:
    infer = resolved.spec.infer
    if infer is None or resolved.verb == "train":
        return None
    return InferPlan(
        output=locate_data(resolved, infer.output.path),
        output_format=infer.output.format,
        output_mode=infer.output.mode,
        export_dir=None if infer.export_dir is None else locate_data(resolved, infer.export_dir),
        signature_def_key=infer.signature_def_key,
        tag_set=infer.tag_set,
        input_mapping=infer.input_mapping,
        output_mapping=infer.output_mapping,
        batch_size=infer.batch_size,
        keep=infer.keep,
        binary_outputs=infer.binary_outputs,
        bad_rows=None if infer.bad_rows is None else locate_data(resolved, infer.bad_rows),
    )


def _stream(resolved: ResolvedSpec, references: dict[str, Reference], record: str) -> StreamPlan | None:
    stream = resolved.spec.stream
    if stream is None:
        return None
    transform = references.get("stream.transform")
    return StreamPlan(
        source=stream.source,
        path=None if stream.path is None else locate_data(resolved, stream.path),
        format=stream.format,
        options=stream.options,
        columns=stream.columns,
        transform=transform.to_plan() if transform else None,
        host=stream.host,
        port=stream.port,
        interval=stream.interval,
        max_files=stream.max_files,
        checkpoint=f"{record}/checkpoint" if stream.checkpoint is None else locate_data(resolved, stream.checkpoint),
    )


def _remote(resolved: ResolvedSpec, record: str) -> RemotePlan:
    """SIGTERM is how Kubernetes ends a pod that somebody deletes, with time to shut down; YARN gives no time, and kills for more
    reasons than that.
    """
    return RemotePlan(
        record=record,
        master=resolved.spec.spark.master or "",
        submitted=round(time.time(), 3),
        heeds_signals=cluster_kind(resolved.spec) is MasterKind.KUBERNETES,
    )


def _tensorboard(resolved: ResolvedSpec) -> TensorBoardOptions:
    """Event files that are written into the run record are not collected into it."""
    chosen = resolved.spec.tensorboard
    in_record = chosen.log_dir is None and is_on_this_machine(resolved.spec)
    return TensorBoardOptions(
        enabled=chosen.enabled,
        port=chosen.port,
        bind=chosen.bind,
        keep_secs=chosen.keep_secs,
        collect=chosen.collect and not in_record,
    )


def _log_dir(resolved: ResolvedSpec, run_folder: Path) -> str | None:
    """Where event files go: where the spec says; on this machine, into the run record; elsewhere the engine decides."""
    configured = resolved.spec.tensorboard.log_dir
    if configured is not None:
        return locate_data(resolved, configured)
    return str(run_folder / "tensorboard") if is_on_this_machine(resolved.spec) else None
