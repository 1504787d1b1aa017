"""`TFNode` of the 2022 API: what a program uses inside its function."""

from __future__ import annotations

from typing import Any

from tfos_core.context import TFNodeContext
from tfos_core.feed.datafeed import DataFeed

__all__ = ("DataFeed", "export_saved_model", "hdfs_path", "release_port", "start_cluster_server")


def hdfs_path(ctx: TFNodeContext, path: str) -> str:
    """`path` with a scheme, against the default file system; the same as `ctx.absolute_path(path)`."""
    return ctx.absolute_path(path)


def start_cluster_server(ctx: TFNodeContext, num_gpus: int = 1, rdma: bool = False) -> tuple[Any, Any]:
    """The same as `ctx.start_cluster_server()`."""
    return ctx.start_cluster_server(num_gpus, rdma)


def release_port(ctx: TFNodeContext) -> None:
    """The same as `ctx.release_port()`."""
    ctx.release_port()


def export_saved_model(ctx: TFNodeContext, model: Any, export_dir: str) -> str | None:
    """The same as `ctx.export_saved_model(model, export_dir)`."""
    return ctx.export_saved_model(model, export_dir)
