"""How each node task gets an executor to itself: through stage-level scheduling, or by what every task asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfos_cli.spec.masters import MasterKind
from tfos_cli.submit.gpus import spark_gives_gpus

if TYPE_CHECKING:
    from tfos_cli.spec.model import JobSpec

__all__ = ("TASK_CPUS", "schedules_stages", "task_properties")

TASK_CPUS = "spark.task.cpus"
TASK_GPUS = "spark.task.resource.gpu.amount"

#: The first Spark that gives the tasks of one stage more than those of another while the number of executors stays as it is.
_FIRST: Mapping[MasterKind, tuple[int, int, int]] = {MasterKind.YARN: (3, 5, 1), MasterKind.KUBERNETES: (3, 5, 1)}


def schedules_stages(kind: MasterKind, version: str | None) -> bool:
    """Whether Spark can give node tasks a resource profile of their own there.

    Args:
        version: of Spark; None for one that can. Every Spark that tfos takes can on Standalone and inside this machine.
    """
    if version is None or kind not in _FIRST:
        return True
    numbers = [int(part) for part in re.findall(r"\d+", version)[:3]]
    return (*numbers, 0, 0, 0)[:3] >= _FIRST[kind]


def task_properties(spec: JobSpec, kind: MasterKind, *, cores: int, version: str | None) -> dict[str, str]:
    """What every task asks for where stages can not differ: all cores and GPUs of its executor, feed tasks too.

    Args:
        cores: of an executor.
    """
    if schedules_stages(kind, version):
        return {}
    gpus = {TASK_GPUS: str(spec.gpus.per_node)} if spark_gives_gpus(spec, kind) else {}
    return ({TASK_CPUS: str(cores)} if cores > 1 else {}) | gpus
