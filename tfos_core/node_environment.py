"""The environment of a node's process; pure."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfos_core.gpu import VISIBLE_DEVICES
from tfos_core.node_config import NodeConfig
from tfos_core.processes import start_time
from tfos_core.settings import MARK_VARIABLE, SUPERVISOR_VARIABLE
from tfos_core.topology import Role, tf_config

__all__ = ("process_environment",)

#: Of Spark's Python workers, and of no use to the user's process.
_NOT_PASSED_ON = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_DIR", "SPARK_AUTH_SOCKET_TIMEOUT")

#: TensorFlow's faster kernels for x86. Given an empty batch some of them fail, and the gradient of max pooling ends the process
#: with SIGABRT (TensorFlow 2.21); the plain kernels take one.
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def process_environment(
    config: NodeConfig, spec: Mapping[str, list[str]], secrets: Mapping[str, str], base: Mapping[str, str], *, temporary: str
) -> dict[str, str]:
    """Variables for the user's process.

    What the job sets wins over what the engine sets, except for `TF_CONFIG`, `TMPDIR`, the GPUs and the marks. A node without
    GPUs gets an empty list, because TensorFlow takes every GPU that it can see.

    Args:
        spec: role -> `host:port` of every node.
        secrets: names and values that came over the control channel.
        base: the environment of the executor's Python worker.
        temporary: the node's own folder for temporary files.
    """
    cluster, slot = config.cluster, config.slot
    env = {name: value for name, value in base.items() if name not in _NOT_PASSED_ON}
    env["PYTHONPATH"] = config.python_path
    # Lines that were printed before a SIGKILL must not be lost in a buffer.
    env["PYTHONUNBUFFERED"] = "1"
    env["TF_GRPC_REUSE_PORT"] = "1"
    if cluster.threads is not None:
        # Spark sets OMP_NUM_THREADS=1 in its workers, which would leave TensorFlow on one core.
        env["OMP_NUM_THREADS"] = str(cluster.threads)
        env["TF_NUM_INTRAOP_THREADS"] = str(cluster.threads)
    if cluster.keras == "legacy":
        env["TF_USE_LEGACY_KERAS"] = "1"
    elif cluster.keras == "keras3":
        env.pop("TF_USE_LEGACY_KERAS", None)
    if config.gpus and VISIBLE_DEVICES not in base:
        # nvidia-smi counts along the PCI bus; CUDA counts the fastest GPU first unless it is told.
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if _may_get_empty_batches(config, spec) and _ONEDNN not in base:
        env[_ONEDNN] = "0"
    env |= cluster.environment
    env |= secrets
    if env["PYTHONPATH"] != config.python_path:
        # The job's own folders go first, but without the engine's the process would not find its own modules.
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], config.python_path])
    # A list that the job or the host had limited the choice already.
    env[VISIBLE_DEVICES] = ",".join(config.gpus)
    if cluster.independent:
        # With one, TensorFlow would wait for the other instances.
        env.pop("TF_CONFIG", None)
    else:
        env["TF_CONFIG"] = tf_config(spec, slot.role, slot.index)
    env["TMPDIR"] = temporary
    env[MARK_VARIABLE] = f"{cluster.run_id}:{cluster.generation}:{config.name}"
    env[SUPERVISOR_VARIABLE] = f"{os.getpid()}:{start_time(os.getpid())}"
    return env


def _may_get_empty_batches(config: NodeConfig, spec: Mapping[str, list[str]]) -> bool:
    """Whether nodes train in step on their own data, so that TensorFlow gives one that has run out empty batches, on its CPU."""
    if config.cluster.equal_steps or config.cluster.independent or config.gpus or Role.PS in spec:
        return False
    return sum(len(addresses) for role, addresses in spec.items() if Role(role).is_fed) > 1
