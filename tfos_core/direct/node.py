"""`ctx.dataset()`: what the job's `data` says, and what the call says instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfos_core.direct.request import DataRequest
from tfos_core.direct.shares import Shard
from tfos_core.errors import ClusterStateError, ConfigError
from tfos_core.topology import Role

if TYPE_CHECKING:
    from tfos_core.context import TFNodeContext

__all__ = ("request_of", "shard_of")


def request_of(
    ctx: TFNodeContext,
    *,
    path: str | None,
    format: str | None,  # noqa: A002
    columns: Sequence[str] | None,
    input_mapping: Mapping[str, str] | None,
    options: Mapping[str, str] | None,
    shuffle: int,
    seed: int,
    shard: bool,
) -> DataRequest:
    """What `ctx.dataset` reads, with its arguments.

    Raises:
        ConfigError: there is no path.
        ClusterStateError: as `shard_of`.
    """
    data = ctx.data
    chosen = path if path is not None else ctx.data_path
    if chosen is None:
        raise ConfigError("there is no path to read", "Set data.path in the spec, or call ctx.dataset(batch_size, path=...).")
    return DataRequest(
        path=ctx.absolute_path(chosen),
        format=format or (data.get("format") if path is None else None),
        # Columns that the call chooses are not renamed by the spec.
        columns=columns if columns is not None else data.get("columns"),
        input_mapping=input_mapping if input_mapping is not None or columns is not None else data.get("input_mapping"),
        options=options if options is not None else data.get("options") or {},
        shard=shard_of(ctx) if shard else Shard(),
        shuffle=shuffle,
        seed=seed,
    )


def shard_of(ctx: TFNodeContext) -> Shard:
    """This node's share.

    Raises:
        ClusterStateError: the node does not train.
    """
    if not Role(ctx.job_name).is_fed:
        raise ClusterStateError(
            f"{ctx.job_name}:{ctx.task_index} does not train, so it has no share of the data",
            "Call ctx.dataset(..., shard=False) to read all of it.",
        )
    return Shard(index=ctx.worker_index, count=ctx.num_workers)
