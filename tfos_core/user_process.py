"""The user's process of one node as its supervisor holds it: started, linked, watched, its output relayed."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfos_core.errors import ChannelClosedError
from tfos_core.feed.door import FeedDoor
from tfos_core.link import link_pair
from tfos_core.node_config import NodeConfig
from tfos_core.node_environment import process_environment
from tfos_core.output import OutputRelay
from tfos_core.processes import has_pidfd, process_state
from tfos_core.reservation import NodeRecord
from tfos_core.stacks import StackPipe, Stacks
from tfos_core.topology import cluster_seen_by, cluster_spec

__all__ = ("UserProcess",)

#: A thread that writes to a link that was hung up ends at once, in seconds.
_WRITER_END_S = 1.0


class UserProcess:
    """Starts `python -m tfos_core.tf_process` and tells it what to run.

    Args:
        records: every node of the cluster.
        payload: the pickled function and its arguments.
        secrets: variables that came over the control channel.
        door: the feed socket that the process inherits, or None.
        temporary: the node's own folder for temporary files.
        send: to the driver; raises nothing.

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
        temporary: str,
        send: Callable[[Mapping[str, Any]], None],
    ) -> None:
        spec = cluster_spec((record.role, record.index, f"{record.host}:{record.port}") for record in records)
        log = Path(config.working_dir) / f"tfos-{config.slot.role}-{config.slot.index}.log"
        self._name = config.name
        self._send = send
        self._outgoing: queue.SimpleQueue[Mapping[str, Any] | bytes | None] = queue.SimpleQueue()
        with contextlib.ExitStack() as passed_on, contextlib.ExitStack() as kept:
            self.link, child_fd = link_pair()
            kept.callback(self.link.close)
            passed_on.callback(os.close, child_fd)
            reading, writing = os.pipe()
            passed_on.callback(os.close, writing)
            self.output = OutputRelay(reading, log, self._send_output, on_copy_end=self._warn_of_copy)
            kept.callback(self.output.close)
            reading, stacks_fd = os.pipe()
            passed_on.callback(os.close, stacks_fd)
            self._stacks = StackPipe(reading)
            kept.callback(self._stacks.close)
            self._popen = subprocess.Popen(
                [config.python, "-m", "tfos_core.tf_process", str(child_fd)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=config.working_dir,
                env=process_environment(config, spec, secrets, os.environ, temporary=temporary),
                pass_fds=[child_fd, stacks_fd] + ([door.fileno()] if door else []),
            )
            kept.callback(self.kill, signal.SIGKILL)
            #: Readable when the process has ended; None where there are no pidfds, and `is_running` has to be asked.
            self.pidfd = os.pidfd_open(self._popen.pid) if has_pidfd() else None
            if self.pidfd is not None:
                kept.callback(os.close, self.pidfd)
            self._closing = kept.pop_all()
        self._outgoing.put(_start_message(config, spec, door) | {"stacks_fd": stacks_fd})
        self._outgoing.put(payload)
        self._writer = threading.Thread(target=self._write_all, name="tfos-process-writer", daemon=True)
        self._writer.start()
        self._closing.callback(self._end_writing)

    @property
    def pid(self) -> int:
        """Its process id, until it has been waited for."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._popen.poll() is None

    def wait(self) -> int:
        """The exit status, negative for a signal; waits for the end."""
        return self._popen.wait()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message; never waits, because the process may be busy, stopped, or still starting."""
        self._outgoing.put(message)

    def kill(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if self.is_running:
            self._popen.send_signal(number)

    def ask_stacks(self, why: str) -> Stacks:
        """Where the process is, of all its threads; also into the log. Waits, for at most 3 seconds."""
        stacks = self._stacks.ask(self._popen.send_signal) if self.is_running else Stacks()
        self.output.drain()
        text = stacks.text or f"it does not say where it is (state {process_state(self.pid)} of /proc/{self.pid}/stat)"
        self.output.add(f"[tfos] the stacks of {self._name}, because {why}:\n{text}")
        return stacks

    def close(self) -> None:
        """Kill the process if it still runs; close the link, the pipe and the pidfd. May be called twice."""
        self._closing.close()

    def _send_output(self, lines: list[str], dropped: int) -> None:
        self._send({"op": "node.output", "lines": lines, "dropped": dropped})

    def _warn_of_copy(self, why: str) -> None:
        text = f"the output of {self._name} is no longer copied to its executor's folder: {why}"
        hint = "tfos logs still shows it. Is the disk of that host full?"
        self._send({"op": "node.warning", "id": "output-copy", "message": text, "hint": hint})

    def _write_all(self) -> None:
        """The writer's thread. A process that has ended before it has read everything is noticed by its end."""
        with contextlib.suppress(ChannelClosedError):
            while (item := self._outgoing.get()) is not None:
                if isinstance(item, bytes):
                    self.link.send_bytes(item)
                else:
                    self.link.send(item)

    def _end_writing(self) -> None:
        self._outgoing.put(None)
        self.link.hang_up()
        self._writer.join(_WRITER_END_S)


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
        "equal_steps": cluster.equal_steps,
        "restart_count": cluster.restart_count,
        "first_epoch": cluster.first_epoch,
        "instances": config.instances,
    }
