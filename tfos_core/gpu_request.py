"""How many GPUs the nodes of a cluster get, and from whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tfos_core.errors import ConfigError

__all__ = ("GpuRequest", "GpuSource", "asked_gpus", "resolve_request")


class GpuSource(StrEnum):
    """Who hands out the GPUs of a cluster."""

    AUTO = "auto"
    SPARK = "spark"
    NVIDIA_SMI = "nvidia-smi"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What every node that trains gets: `per_node` GPUs from `source`; not `required` means only if so many are free."""

    per_node: int = 0
    source: GpuSource = GpuSource.NONE
    required: bool = True

    @property
    def from_spark(self) -> int:
        """GPUs that each node task asks of Spark's scheduler."""
        return self.per_node if self.source is GpuSource.SPARK else 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GpuRequest:
        """After a trip through JSON."""
        return cls(per_node=data["per_node"], source=GpuSource(data["source"]), required=data["required"])


def asked_gpus(asked: object, function_args: object) -> int | None:
    """GPUs per node that the caller asks for; as in 2022, `num_gpus` of the function's arguments says it where the caller does not.

    Raises:
        ConfigError: no whole number from 0, nor None.
    """
    if asked is None:
        found = function_args.get("num_gpus") if isinstance(function_args, Mapping) else getattr(function_args, "num_gpus", None)
        # A program of 2022 may keep anything under this name; only a number is the number of GPUs.
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
        raise ConfigError(
            f"gpus is {asked!r}, but it is a number of GPUs per node", "Use 0 or more, or None for one if one is free."
        )
    return asked


def resolve_request(asked: int | None, source: str, *, master: str, conf: Mapping[str, str]) -> GpuRequest:
    """What the nodes of a cluster get, from what was asked and what Spark has.

    Args:
        asked: GPUs per node; None, as in 2022, for those that Spark gives a task, or else for one GPU if one is free.
        source: `auto`, `spark` or `nvidia-smi`.
        conf: Spark's properties.

    Raises:
        ConfigError: a number or a source that can not work with this master and these properties.
    """
    if asked == 0:
        return GpuRequest()
    has = _whole(conf, "spark.executor.resource.gpu.amount")
    on_kubernetes = master.startswith("k8s://")
    chosen = GpuSource(source)
    if chosen is GpuSource.AUTO:
        chosen = GpuSource.SPARK if has else GpuSource.NONE if on_kubernetes else GpuSource.NVIDIA_SMI
    if chosen is GpuSource.NVIDIA_SMI and on_kubernetes:
        raise ConfigError(
            "GPUs are to be found with nvidia-smi, but pods on Kubernetes may use only those that Spark asked for",
            f"Set gpus.source to spark, and spark.executor.resource.gpu.amount to {asked or 1}.",
        )
    if chosen is GpuSource.NVIDIA_SMI:
        return GpuRequest(per_node=asked or 1, source=chosen, required=asked is not None)
    if asked is None and not has:
        return GpuRequest()
    needed = asked or max(1, _whole(conf, "spark.task.resource.gpu.amount"))
    if has < needed:
        raise ConfigError(
            f"every node needs {needed} GPUs from Spark, but spark.executor.resource.gpu.amount is {has or 'not set'}",
            f"Set spark.executor.resource.gpu.amount={needed} before the SparkContext starts, or use the source nvidia-smi.",
        )
    return GpuRequest(per_node=needed, source=GpuSource.SPARK)


def _whole(conf: Mapping[str, str], key: str) -> int:
    """A property as a whole number, fractions cut off; 0 when it is not set."""
    try:
        return int(float(conf.get(key, "0")))
    except ValueError as exc:
        raise ConfigError(f"{key} is {conf[key]!r}, which is no number of GPUs") from exc
