"""GPUs in the Spark properties of a job. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfos_cli.spec.masters import MasterKind

if TYPE_CHECKING:
    from tfos_cli.spec.model import JobSpec

__all__ = ("AMOUNT", "SCRIPT", "SCRIPT_NAME", "gpu_properties", "shared_gpu_properties", "shipped_script", "spark_gives_gpus")

AMOUNT = "spark.executor.resource.gpu.amount"
SCRIPT = "spark.executor.resource.gpu.discoveryScript"
SCRIPT_NAME = "gpu_discovery.sh"

#: Executors of Kubernetes look for their GPUs before Spark has brought them any file, so the script has to be in the image.
#: This one, of Spark itself, is in every image that was built as Spark's documentation says.
_SCRIPT_IN_IMAGE = "/opt/spark/examples/src/main/scripts/getGpusResources.sh"


def spark_gives_gpus(spec: JobSpec, kind: MasterKind) -> bool:
    """Whether the job asks Spark for GPUs. Executors on this machine would all be offered the same ones."""
    managers = (MasterKind.STANDALONE, MasterKind.YARN, MasterKind.KUBERNETES)
    return spec.gpus.per_node > 0 and spec.gpus.source in ("auto", "spark") and kind in managers


def gpu_properties(spec: JobSpec, kind: MasterKind) -> dict[str, str]:
    """What the executors of a job ask for.

    Tasks ask for nothing (`spark.task.resource.gpu.amount`): no more feed tasks would run than there are GPUs. The tasks that start
    nodes ask for theirs in their own resource profile.
    """
    if not spark_gives_gpus(spec, kind):
        return {}
    properties = {AMOUNT: str(spec.gpus.per_node)}
    match kind:
        case MasterKind.YARN:
            properties[SCRIPT] = f"./{SCRIPT_NAME}"
        case MasterKind.KUBERNETES:
            properties["spark.executor.resource.gpu.vendor"] = "nvidia.com"
            properties[SCRIPT] = _SCRIPT_IN_IMAGE
        case _:
            pass  # Standalone's Workers know their GPUs, and tell their executors
    return properties


def shared_gpu_properties(spec: JobSpec, kind: MasterKind, *, cores: int) -> dict[str, str]:
    """What every task of an inference asks for: its part of the executor's GPUs, so that it is told which they are."""
    if not spark_gives_gpus(spec, kind):
        return {}
    amount = spec.gpus.per_node / cores
    return {"spark.task.resource.gpu.amount": str(int(amount)) if amount >= 1 else f"{amount:.6g}"}


def shipped_script(spec: JobSpec, kind: MasterKind, run_folder: Path) -> Path | None:
    """Where the discovery script of a run is that travels with the job, None when none does: YARN brings files before it looks."""
    if kind is not MasterKind.YARN or not spark_gives_gpus(spec, kind) or SCRIPT in spec.spark.conf:
        return None
    return run_folder / "ship" / SCRIPT_NAME
