"""How much memory an executor gets outside the JVM heap, where TensorFlow lives."""

from __future__ import annotations

from dataclasses import dataclass

from tfos_cli.spec.masters import MasterKind, master_kind
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.values import memory_bytes, property_bytes

__all__ = (
    "BOARD",
    "DRIVER_OVERHEAD_KEYS",
    "FORMULA",
    "LEAST_OVERHEAD",
    "POD_FACTOR",
    "OverheadChoice",
    "choose_overhead",
    "driver_overhead",
    "formula_of",
    "kept_rows",
)

LEAST_OVERHEAD = 2 << 30
"""Bytes. A process that trains a small model with TensorFlow 2.21 holds 0.65 GiB (measured); Python workers come on top."""
BOARD = 768 << 20
"""Bytes. TensorBoard beside the chief holds 670 MiB (measured). All executors of an application are alike, so each gets them."""
POD_FACTOR = "spark.kubernetes.memoryOverheadFactor"
"""Spark's older factor, of driver and executors in pods."""
DRIVER_OVERHEAD = 1 << 30
"""Bytes. Python with pandas and pyarrow, and the JVM beside its heap."""
DRIVER_OVERHEAD_KEYS = frozenset({"spark.driver.memoryOverhead", "spark.driver.memoryOverheadFactor", POD_FACTOR})
FORMULA = "the larger of 2g and half of spark.executor_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadChoice:
    """The overhead in Spark's form (`2048m`), None where the cluster manager has no such limit; and why."""

    memory: str | None
    reason: str


def choose_overhead(spec: JobSpec) -> OverheadChoice:
    """The overhead that is submitted: the spec's own, or computed for the managers that kill a container for memory."""
    spark = spec.spark
    keys = ["spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor"]
    if master_kind(spark.master) is MasterKind.KUBERNETES:
        keys.append(POD_FACTOR)
    for key in keys:
        if key in spark.conf:
            return OverheadChoice(memory=None, reason=f"{key} is set in spark.conf")
    if spark.executor_memory_overhead is not None:
        return OverheadChoice(memory=spark.executor_memory_overhead, reason="set in the spec")
    if master_kind(spark.master) not in (MasterKind.YARN, MasterKind.KUBERNETES):
        return OverheadChoice(memory=None, reason="no limit outside YARN and Kubernetes")
    heap = property_bytes(spark.conf.get("spark.executor.memory", "")) or memory_bytes(spark.executor_memory)
    overhead = max(LEAST_OVERHEAD, heap // 2) + (BOARD if spec.tensorboard.enabled else 0) + (kept_rows(spec) or 0)
    return OverheadChoice(memory=f"{-(-overhead // (1 << 20))}m", reason=formula_of(spec))


def driver_overhead(spec: JobSpec) -> int:
    """Bytes beside the heap of a driver in a container: what Python takes, and the nodes that run there."""
    on_driver = spec.num_ps if spec.driver_ps_nodes else 0
    return DRIVER_OVERHEAD + on_driver * LEAST_OVERHEAD


def formula_of(spec: JobSpec) -> str:
    """How the overhead of a spec is computed, for people."""
    kept = kept_rows(spec)
    board = f", and {BOARD >> 20}m for TensorBoard" if spec.tensorboard.enabled else ""
    return f"{FORMULA}{board}{'' if kept is None else f', and {kept >> 20}m of data.cache_memory'}"


def kept_rows(spec: JobSpec) -> int | None:
    """Bytes of rows that a node keeps in memory for later epochs, None when it keeps none."""
    data = spec.data
    return memory_bytes(data.cache_memory) if data is not None and data.cache == "node" else None
