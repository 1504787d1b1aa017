"""Memory: what Spark's JVM needs, and what TensorFlow needs outside it."""

from __future__ import annotations

import math

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.masters import MasterKind
from tfos_cli.spec.memory import BOARD, LEAST_OVERHEAD, POD_FACTOR, formula_of
from tfos_cli.spec.values import MEMORY_EXPECTED, property_bytes

__all__ = ("RULES",)

LEAST_HEAP = 450 << 20
"""Bytes below which Spark refuses to start a driver or an executor (UnifiedMemoryManager: 1.5 times 300 MiB)."""
SMALL_OVERHEAD = 1 << 30
OVERHEAD_KEY = "spark.executor.memoryOverhead"
FACTOR_KEY = "spark.executor.memoryOverheadFactor"


def heaps(case: Case) -> Findings:
    """Spark refuses smaller ones."""
    for heap in (case.heap("executor"), case.heap("driver")):
        if heap.size is None:
            message = f"{heap.field} is {heap.text!r}, expected {MEMORY_EXPECTED}"
            yield case.error("memory-unreadable", heap.field, message, "Use 1g.")
        elif heap.size < LEAST_HEAP:
            message = f"{heap.field} is {heap.text}, and Spark does not start below 450m"
            yield case.error("memory-too-small", heap.field, message, "Use 1g.")


def overhead(case: Case) -> Findings:
    """YARN and Kubernetes kill the container of an executor that takes more than heap and overhead together."""
    if case.kind not in (MasterKind.YARN, MasterKind.KUBERNETES):
        return
    field, size = _overhead(case)
    board = BOARD if case.spec.tensorboard.enabled else 0
    if size is None:
        yield case.error("memory-unreadable", field, f"{field} is no size that Spark can read", "Leave it out for the default.")
    elif size < SMALL_OVERHEAD + board:
        yield case.warning(
            "overhead-too-small",
            field,
            f"TensorFlow{' and TensorBoard get' if board else ' gets'} {size >> 20} MiB outside the JVM heap; above that the "
            "cluster kills the executor",
            f"Leave it out for the default ({formula_of(case.spec)}), or give {(LEAST_OVERHEAD + board) >> 20}m and more.",
        )


def overhead_set_twice(case: Case) -> Findings:
    """The property and the spec's key are the same thing."""
    explicit = case.spec.spark.executor_memory_overhead
    if OVERHEAD_KEY in case.conf and explicit is not None and case.conf[OVERHEAD_KEY] != explicit:
        message = f"{OVERHEAD_KEY} is {case.conf[OVERHEAD_KEY]}, and spark.executor_memory_overhead is {explicit}"
        yield case.conf_error("conf-contradicts-spec", OVERHEAD_KEY, message, "Keep spark.executor_memory_overhead.")


def python_limit(case: Case) -> Findings:
    """Spark makes this an address space limit of its Python workers, which all children inherit."""
    key = "spark.executor.pyspark.memory"
    if key in case.conf:
        message = f"{key} limits the address space of Python workers and of TensorFlow, which reserves far more than it uses"
        yield case.warning("pyspark-memory", f"spark.conf.{key}", message, "Use spark.executor_memory_overhead instead.")


def _overhead(case: Case) -> tuple[str, int | None]:
    """The key that decides, and bytes; None when the value can not be read here."""
    if OVERHEAD_KEY in case.conf:
        return f"spark.conf.{OVERHEAD_KEY}", property_bytes(case.conf[OVERHEAD_KEY])
    for key in (FACTOR_KEY, POD_FACTOR) if case.kind is MasterKind.KUBERNETES else (FACTOR_KEY,):
        if key in case.conf:
            return f"spark.conf.{key}", _by_factor(case.conf[key], case.heap("executor").size or 0)
    chosen = case.resolved.memory_overhead.memory
    return "spark.executor_memory_overhead", property_bytes(chosen or "")


def _by_factor(text: str, heap: int) -> int | None:
    try:
        factor = float(text)
    except ValueError:
        return None
    return int(max(heap * factor, 384 << 20)) if math.isfinite(factor) else None


RULES = (heaps, overhead, overhead_set_twice, python_limit)
