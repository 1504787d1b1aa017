"""Starting one node: its supervisor, from the Spark task on its executor or from the driver."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_core.errors import ChannelClosedError, ConfigError, GpuError, NodeFailedError
from tfos_core.gpu_request import GpuSource
from tfos_core.link import Link, link_pair
from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.node_gpus import GPU_WAIT_S, SoloTask, take_gpus, visible_devices
from tfos_core.processes import java_ancestor, kill_orphans, start_time
from tfos_core.scratch import sweep_scratch
from tfos_core.topology import NodeSlot

if TYPE_CHECKING:
    from pyspark import Broadcast

__all__ = ("NodeTask", "TaskEnd", "follow_node", "start_node")

logger = logging.getLogger(__name__)

#: The detaching half of the supervisor ends at once; longer means that the interpreter does not start, in seconds.
_DETACH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """What a node task comes back with: no error, or why its node was not started."""

    node: str
    error: GpuError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """Starts the supervisor of one node, and stays until the node is ready (fed nodes) or has ended (all others).

    The user's function is in a broadcast of its own, because Spark writes closures above 1 MB to disk and this one holds the
    secret.
    """

    cluster: ClusterConfig
    slots: tuple[NodeSlot, ...]
    payload: Broadcast[bytes]
    barrier: bool = True

    def __call__(self, partition: Iterable[int]) -> Iterator[TaskEnd]:
        slot = self.slots[next(iter(partition))]
        kill_orphans()
        try:
            config = replace(self._configure(slot), gpus=self._take_gpus(slot))
        except GpuError as exc:
            # All tasks end with it. Raised, it would reach the driver inside several layers of Spark's traces.
            yield TaskEnd(node=slot.name, error=exc)
            return
        link = start_node(config, self.payload.value)
        try:
            follow_node(link, config)
        except NodeFailedError:
            # Raised, it would end the tasks of the other instances too; the driver hears of it over the control channel.
            if not self.cluster.independent:
                raise
        finally:
            link.close()
        yield TaskEnd(node=config.name)

    def _take_gpus(self, slot: NodeSlot) -> tuple[str, ...]:
        request = self.cluster.gpus
        if request.source is GpuSource.NONE:
            return ()
        from pyspark import BarrierTaskContext, TaskContext

        visible = visible_devices(self.cluster.environment, os.environ)
        wait_s = min(GPU_WAIT_S, self.cluster.reservation_timeout / 2)
        # Not told from the context's class: a reused Python worker may still have that of an earlier task.
        if self.barrier:
            return take_gpus(request, self.slots, BarrierTaskContext.get(), visible=visible, wait_s=wait_s)
        # Without a barrier there is nobody to agree with, so only Spark hands out GPUs.
        task = SoloTask(TaskContext.get().resources())
        return take_gpus(request, (slot,), task, visible=visible, wait_s=wait_s)

    def _configure(self, slot: NodeSlot) -> NodeConfig:
        jvm = java_ancestor(os.getpid())
        return NodeConfig(
            cluster=self.cluster,
            slot=slot,
            jvm_pid=jvm,
            jvm_started=start_time(jvm) if jvm else 0,
            working_dir=str(Path.cwd()),
            python=sys.executable,
            python_path=os.pathsep.join(path for path in sys.path if path),
            instances=len(self.slots) if self.cluster.independent else 0,
        )


def start_node(config: NodeConfig, payload: bytes) -> Link:
    """Start the supervisor of a node and tell it what to do; the link is its life line.

    Args:
        payload: the pickled function and its arguments.

    Raises:
        ConfigError: the interpreter does not start.
        ChannelClosedError: the supervisor ended at once.
    """
    link = _start_supervisor(config)
    try:
        link.send(config.to_dict())
        link.send_bytes(payload)
    except ChannelClosedError:
        link.close()
        raise
    return link


def follow_node(link: Link, config: NodeConfig) -> None:
    """Wait for what the supervisor says; the driver bounds the wait, because it ends the supervisor at its deadlines.

    Raises:
        NodeFailedError: the node failed, or its supervisor ended without a word.
    """
    try:
        message: dict[str, Any] = link.receive()
    except ChannelClosedError as exc:
        sweep_scratch(os.environ)
        raise NodeFailedError(
            f"the supervisor of {config.name} ended without a word; its last lines: {_last_lines(_supervisor_log(config))}",
            node=config.name,
        ) from exc
    if message["op"] == "ended" and not message["ok"]:
        raise NodeFailedError(
            f"{config.name} failed: {message['error']}", node=config.name, remote_traceback=message.get("traceback", "")
        )


def _start_supervisor(config: NodeConfig) -> Link:
    link, child_fd = link_pair()
    log = _supervisor_log(config)
    try:
        with log.open("ab") as output:
            detaching = subprocess.Popen(
                [config.python, "-m", "tfos_core.supervisor", str(child_fd)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(os.environ) | {"PYTHONPATH": config.python_path},
                pass_fds=[child_fd],
                start_new_session=True,
            )
    except OSError as exc:
        link.close()
        raise ConfigError(f"{config.name} could not start {config.python!r} in {config.working_dir}: {exc}") from exc
    finally:
        os.close(child_fd)
    if status := detaching.wait(_DETACH_TIMEOUT_S):
        link.close()
        raise ConfigError(f"the supervisor of {config.name} ended with code {status} at its start: {_last_lines(log)}")
    return link


def _supervisor_log(config: NodeConfig) -> Path:
    return Path(config.working_dir) / f"tfos-{config.slot.role}-{config.slot.index}-supervisor.log"


def _last_lines(log: Path, *, most: int = 5) -> str:
    """The end of a log in one line; the folder it lies in may be gone when somebody looks."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as exc:
        return f"({exc})"
    return " | ".join(line.strip() for line in lines[-most:]) or "(none)"
