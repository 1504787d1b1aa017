"""The user's process of one node as its supervisor holds it: started, linked, watched, its output relayed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfos_core.errors import ChannelClosedError
from tfos_core.feed.door import FeedDoor
from tfos_core.link import link_pair
from tfos_core.node_config import NodeConfig
from tfos_core.node_environment import process_environment
from tfos_core.output import OutputRelay
from tfos_core.reservation import NodeRecord
from tfos_core.topology import cluster_seen_by, cluster_spec

__all__ = ("UserProcess",)


class UserProcess:
    """Starts `python -m tfos_core.tf_process` and tells it what to run.

    Args:
        records: every node of the cluster.
        payload: the pickled function and its arguments.
        secrets: variables that came over the control channel.
        door: the feed socket that the process inherits, or None.
        send_output: gets (lines, dropped).

    Raises:
        OSError: the interpreter can not be started.
    """

    def __init__(
        self,
        config: NodeConfig,
        records: Sequence[NodeRecord],
        payload: bytes,
        *,
        secrets: Mapping[str, str],
        door: FeedDoor | None,
        send_output: Callable[[list[str], int], None],
    ) -> None:
        spec = cluster_spec((record.role, record.index, f"{record.host}:{record.port}") for record in records)
        self.link, child_fd = link_pair()
        reading, writing = os.pipe()
        log = Path(config.working_dir) / f"tfos-{config.slot.role}-{config.slot.index}.log"
        self.output = OutputRelay(reading, log, send_output)
        try:
            self._popen = subprocess.Popen(
                [config.python, "-m", "tfos_core.tf_process", str(child_fd)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=config.working_dir,
                env=process_environment(config, spec, secrets, os.environ),
                pass_fds=[child_fd] + ([door.fileno()] if door else []),
            )
        except BaseException:
            self.link.close()
            self.output.close()
            raise
        finally:
            os.close(child_fd)
            os.close(writing)
        #: Readable when the process has ended; None where the platform has no pidfd (there the link's end tells).
        self.pidfd = os.pidfd_open(self._popen.pid) if hasattr(os, "pidfd_open") else None
        # A process that ends before it has read this is noticed by its end.
        with contextlib.suppress(ChannelClosedError):
            self.link.send(_start_message(config, spec, door))
            self.link.send_bytes(payload)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._popen.poll() is None

    def wait(self) -> int:
        """The exit status, negative for a signal; waits for the end."""
        return self._popen.wait()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if self.is_running:
            self._popen.send_signal(number)

    def close(self) -> None:
        """Close the link, the pipe and the pidfd."""
        self.link.close()
        self.output.close()
        if self.pidfd is not None:
            os.close(self.pidfd)


def _start_message(config: NodeConfig, spec: Mapping[str, list[str]], door: FeedDoor | None) -> dict[str, Any]:
    cluster, slot = config.cluster, config.slot
    return {
        "op": "start",
        "supervisor_pid": os.getpid(),
        "node": config.name,
        "generation": cluster.generation,
        "run_id": cluster.run_id,
        "executor_id": slot.executor_id,
        "role": slot.role,
        "index": slot.index,
        "cluster_spec": cluster_seen_by(slot.role, spec),
        "input_mode": cluster.input_mode,
        "default_fs": cluster.default_fs,
        "working_dir": cluster.base_dir or config.working_dir,
        "num_epochs": cluster.num_epochs,
        "data": dict(cluster.data),
        "log_dir": config.log_dir,
        "listener_fd": door.fileno() if door else None,
        "progress_path": door.progress_path if door else None,
        "feed_budget_bytes": cluster.feed_budget_bytes,
    }
