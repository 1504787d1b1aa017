"""Names of the 2022 API for looking up GPUs on the host of the caller."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from tfos_core.errors import ConfigError, GpuError
from tfos_core.gpu import VISIBLE_DEVICES, GpuSurvey, restrict
from tfos_core.nvidia_smi import survey, survey_until

__all__ = ("AS_LIST", "AS_STRING", "MAX_WAIT_S", "choose", "get_gpus", "is_gpu_available")

AS_STRING = "string"
AS_LIST = "list"

#: How long `get_gpus` waits for GPUs that other jobs use, in seconds (2022: three minutes).
MAX_WAIT_S = 30.0


def is_gpu_available(*, look: Callable[[], GpuSurvey] = survey) -> bool:
    """Whether nvidia-smi lists a GPU on this host, in use or not."""
    return bool(look().gpus)


def get_gpus(
    num_gpu: int = 1,
    worker_index: int = -1,
    format: str = AS_STRING,  # noqa: A002 - the name of 2022
    *,
    look: Callable[[], GpuSurvey] = survey,
) -> str | list[str]:
    """GPUs of this host that nobody uses, as CUDA_VISIBLE_DEVICES names them; an existing CUDA_VISIBLE_DEVICES limits the choice.

    Args:
        num_gpu: how many.
        worker_index: position among the processes of this host, which then get different ones as long as there are enough;
            -1 (the default) chooses at random.
        format: `AS_STRING` for `"0,1"`, `AS_LIST` for `["0", "1"]`.

    Raises:
        GpuError: so many are not free within `MAX_WAIT_S`.
        ConfigError: an unknown format.
    """
    if format not in (AS_STRING, AS_LIST):
        raise ConfigError(f"format is {format!r}", f"Use {AS_STRING!r} or {AS_LIST!r}.")
    gpus = choose(num_gpu, worker_index, os.environ.get(VISIBLE_DEVICES), look)
    return ",".join(gpus) if format == AS_STRING else gpus


def choose(num_gpu: int, worker_index: int, visible: str | None, look: Callable[[], GpuSurvey]) -> list[str]:
    """`get_gpus` as a list, within the given CUDA_VISIBLE_DEVICES instead of this process's."""
    if num_gpu <= 0:
        return []

    def enough(found: GpuSurvey) -> bool:
        mine = restrict(found.gpus, visible)
        # Waiting brings no GPU that is not there.
        return len(mine) < num_gpu or len(_free(found, visible)) >= num_gpu

    found = survey_until(enough, MAX_WAIT_S, look=look)
    free = _free(found, visible)
    if len(free) < num_gpu:
        present = len(restrict(found.gpus, visible))
        why = found.problem or f"{present} present, {len(free)} free"
        raise GpuError(f"{num_gpu} free GPUs needed on this host: {why}", "Look at nvidia-smi on this host, or ask for fewer.")
    if worker_index < 0:
        return random.sample(free, num_gpu)
    start = worker_index % (len(free) // num_gpu) * num_gpu
    return free[start : start + num_gpu]


def _free(found: GpuSurvey, visible: str | None) -> list[str]:
    return [gpu.id for gpu in restrict(found.gpus, visible) if not gpu.in_use]
