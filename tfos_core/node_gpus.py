"""The step of a node task that takes the GPUs of its node; runs on the executor, inside Spark's barrier task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tfos_core.errors import GpuError
from tfos_core.gpu import (
    VISIBLE_DEVICES,
    GpuSurvey,
    Seat,
    assign,
    index_into,
    restrict,
    shortage,
)
from tfos_core.gpu_request import GpuRequest, GpuSource
from tfos_core.nvidia_smi import survey, survey_until
from tfos_core.topology import NodeSlot

__all__ = ("GPU_WAIT_S", "SoloTask", "TaskView", "take_gpus", "visible_devices")

#: How long a node waits for GPUs that other jobs use, in seconds; less when `reservation_timeout` is less.
GPU_WAIT_S = 30.0


class TaskView(Protocol):
    """What is used of `pyspark.BarrierTaskContext`."""

    def partitionId(self) -> int: ...  # noqa: N802 - Spark's name

    def resources(self) -> Mapping[str, Any]: ...

    def getTaskInfos(self) -> Sequence[Any]: ...  # noqa: N802 - Spark's name

    def allGather(self, message: str) -> Sequence[str]: ...  # noqa: N802 - Spark's name


class SoloTask:
    """A task without a barrier, as `take_gpus` sees it: alone.

    Args:
        resources: what Spark gave the task, as `TaskContext.resources()`.
    """

    def __init__(self, resources: Mapping[str, Any]) -> None:
        self._resources = resources

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """The only one."""
        return 0

    def resources(self) -> Mapping[str, Any]:
        """What Spark gave the task."""
        return self._resources

    def getTaskInfos(self) -> Sequence[Any]:  # noqa: N802 - Spark's name
        """Of this task."""
        return (_SoloInfo(),)

    def allGather(self, message: str) -> Sequence[str]:  # noqa: N802 - Spark's name
        """What all tasks say."""
        return (message,)


class _SoloInfo:
    address = "localhost:0"


def visible_devices(job: Mapping[str, str], host: Mapping[str, str]) -> str | None:
    """CUDA_VISIBLE_DEVICES as the job or the executor's surroundings set it; None when nobody did."""
    return job.get(VISIBLE_DEVICES, host.get(VISIBLE_DEVICES))


def take_gpus(
    request: GpuRequest,
    slots: Sequence[NodeSlot],
    task: TaskView,
    *,
    visible: str | None,
    wait_s: float = GPU_WAIT_S,
    look: Callable[[], GpuSurvey] = survey,
) -> tuple[str, ...]:
    """The GPUs of this task's node, as CUDA_VISIBLE_DEVICES names them.

    All tasks decide together: one looks for each host, before any node runs, so that two nodes of a host neither see each other as
    busy nor take the same GPU. They also fail together, with the same sentence.

    Args:
        slots: the node of each partition.
        visible: an existing CUDA_VISIBLE_DEVICES of this executor; only its GPUs are taken.
        wait_s: seconds to wait for GPUs that other jobs use.

    Raises:
        GpuError: too few; raised in every task.
    """
    if request.source is GpuSource.NONE:
        return ()
    seats = _seats(request, slots, task)
    own = seats[task.partitionId()]
    mine: dict[str, Any] = {}
    if request.source is GpuSource.NVIDIA_SMI:
        first = next((seat for seat in seats if seat.host == own.host and seat.gpus), None)
        if first is own:
            mine["survey"] = _look(request, seats, own.host, visible, wait_s, look).to_dict()
    elif own.gpus:
        try:
            mine["taken"] = _from_spark(own, task, visible)
        except GpuError as exc:
            mine |= {"error": f"{own.node} on {own.host}: {exc}", "hint": exc.hint}
    told = [json.loads(message) for message in task.allGather(json.dumps(mine))]
    for other in told:
        if "error" in other:
            raise GpuError(other["error"], other["hint"])
    if request.source is GpuSource.SPARK:
        return tuple(mine.get("taken", ()))
    surveys = {
        seat.host: GpuSurvey.from_dict(other["survey"]) for seat, other in zip(seats, told, strict=True) if "survey" in other
    }
    return assign(seats, surveys, required=request.required)[own.node]


def _seats(request: GpuRequest, slots: Sequence[NodeSlot], task: TaskView) -> list[Seat]:
    """Where all nodes run, by partition. Addresses are `host:port`; ps and evaluators compute on the CPU."""
    hosts = [str(info.address).rpartition(":")[0] for info in task.getTaskInfos()]
    return [
        Seat(node=slot.name, host=host, gpus=request.per_node if slot.role.is_fed else 0)
        for slot, host in zip(slots, hosts, strict=True)
    ]


def _look(
    request: GpuRequest, seats: Sequence[Seat], host: str, visible: str | None, wait_s: float, look: Callable[[], GpuSurvey]
) -> GpuSurvey:
    def restricted() -> GpuSurvey:
        found = look()
        return GpuSurvey(gpus=restrict(found.gpus, visible), problem=found.problem)

    if not request.required:
        return restricted()
    return survey_until(lambda found: not shortage(host, seats, found)[1], wait_s, look=restricted)


def _from_spark(own: Seat, task: TaskView, visible: str | None) -> tuple[str, ...]:
    given = task.resources().get("gpu")
    addresses = list(given.addresses) if given is not None else []
    if len(addresses) < own.gpus:
        raise GpuError(
            f"{own.gpus} GPUs needed, and Spark gave {len(addresses)}", "Check spark.executor.resource.gpu.amount and its script."
        )
    return index_into(addresses[: own.gpus], visible)
