"""`util.single_node_env` of the 2022 API: GPUs for a process that is no node of a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import cache

from tfos_core import gpu_info
from tfos_core.gpu import VISIBLE_DEVICES, GpuSurvey
from tfos_core.nvidia_smi import survey

__all__ = ("position_on_host", "single_node_env")

logger = logging.getLogger(__name__)


def single_node_env(
    num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = (), *, look: Callable[[], GpuSurvey] = survey
) -> None:
    """Set CUDA_VISIBLE_DEVICES of this process; call it before TensorFlow is imported.

    Without a GPU on the host, or with `num_gpus=0`, it is set to an empty text, so that TensorFlow uses the CPU. (In 2022 it also
    prepared CLASSPATH for a TensorFlow that read HDFS itself, which TensorFlow no longer does.)

    Args:
        num_gpus: how many this process gets.
        worker_index: position of this process in `nodes`; -1 chooses GPUs at random.
        nodes: `host:port` of all processes, so that those of one host get different GPUs.

    Raises:
        GpuError: the host has GPUs, but not so many free ones.
    """
    # Tasks reuse Python workers: what an earlier call has set here must not limit this one.
    visible = _visible_at_first()
    chosen: list[str] = []
    if num_gpus > 0 and gpu_info.is_gpu_available(look=look):
        position = position_on_host(worker_index, nodes) if worker_index >= 0 and nodes else worker_index
        chosen = gpu_info.choose(num_gpus, position, visible, look)
    logger.info("using %s", f"GPU {','.join(chosen)}" if chosen else "the CPU")
    os.environ[VISIBLE_DEVICES] = ",".join(chosen)


def position_on_host(worker_index: int, nodes: Sequence[str]) -> int:
    """Which of the nodes on its host this one is; `nodes` are `host:port`, and hosts are compared as a whole.

    >>> position_on_host(2, ["10.0.0.1:1", "10.0.0.12:1", "10.0.0.1:2"])
    1
    """
    hosts = [node.rpartition(":")[0] or node for node in nodes]
    return hosts[:worker_index].count(hosts[worker_index])


@cache
def _visible_at_first() -> str | None:
    return os.environ.get(VISIBLE_DEVICES)
