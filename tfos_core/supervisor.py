"""The process that owns one node: `python -m tfos_core.supervisor LINK_FD`.

It is detached from the Spark task that starts it (Spark kills idle Python workers after a minute, and a fed node outlives its
task), registers the node with the driver, starts the user's process and ends it when anything it depends on ends: the executor's
JVM, the driver, or, for nodes that hold their task, the task. One selector loop waits for all of these; nothing polls on Linux.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfos_core import net, settings
from tfos_core.errors import ChannelClosedError, ConfigError, TfosError
from tfos_core.feed import rendezvous
from tfos_core.feed.refusal import Refusal
from tfos_core.link import Link, link_pair
from tfos_core.node_config import NodeConfig
from tfos_core.node_environment import process_environment
from tfos_core.outcome import Outcome, judge
from tfos_core.output import OutputRelay
from tfos_core.processes import become_subreaper, is_same_process, kill_descendants, start_time
from tfos_core.reservation import Client, NodeRecord, Right
from tfos_core.topology import cluster_spec

__all__ = ("Supervisor", "main")

logger = logging.getLogger(__name__)

#: Where the JVM can only be looked at (no pidfd), how often, in seconds.
_JVM_LOOK_S = 1.0


class Supervisor:
    """One node from registration to its end; `run` returns when nothing of it is left."""

    def __init__(self, config: NodeConfig, payload: bytes, task: Link) -> None:
        self._config = config
        self._payload = payload
        self._task: Link | None = task
        self._selector = selectors.DefaultSelector()
        self._cleanup = contextlib.ExitStack()
        self._client: Client | None = None
        self._listener: socket.socket | None = None
        self._folder: Path | None = None
        self._port_holder: socket.socket | None = None
        self._refusal: Refusal | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._process_fd: int | None = None
        self._link: Link | None = None
        self._output: OutputRelay | None = None
        self._reported: dict[str, Any] | None = None
        self._user_secrets: dict[str, str] | None = None if config.cluster.has_user_secrets else {}
        self._outcome: Outcome | None = None
        self._stop_reason: str | None = None
        self._kill_at: float | None = None
        self._done = False

    def run(self) -> None:
        """Register, run the user's process, and stay until the driver lets go."""
        with self._cleanup:
            # The driver counts a node as gone when its channel closes, so that comes after everything else.
            self._cleanup.callback(self._close_channel)
            self._cleanup.callback(kill_descendants, os.getpid())
            try:
                self._watch_jvm()
                self._open_feed_socket()
                self._register()
            except (TfosError, OSError) as exc:
                self._tell_task({"op": "ended", "ok": False, "error": f"{self._config.name} could not start: {exc}"})
                return
            if self._task is not None:
                self._selector.register(self._task, selectors.EVENT_READ, self._on_task)
            while not self._done:
                for key, _ in self._selector.select(self._timeout()):
                    handler: Callable[[], None] = key.data
                    handler()
                    if self._done:
                        break
                self._on_time()

    # ---- start -------------------------------------------------------------------------------------------------------------

    def _watch_jvm(self) -> None:
        pid = self._config.jvm_pid
        if not pid or not hasattr(os, "pidfd_open"):
            return
        fd = os.pidfd_open(pid)
        self._cleanup.callback(os.close, fd)
        if not is_same_process(pid, self._config.jvm_started):
            raise TfosError(f"the executor's JVM (pid {pid}) ended before its node started")
        self._selector.register(fd, selectors.EVENT_READ, self._on_jvm_end)

    def _open_feed_socket(self) -> None:
        if not self._config.is_fed:
            return
        rendezvous.sweep(os.environ)
        self._refuse_company(rendezvous.executor_folder(os.environ))
        self._folder = rendezvous.create_folder(os.environ)
        self._cleanup.callback(rendezvous.remove_folder, self._folder)
        self._listener = rendezvous.listen(self._folder)
        self._cleanup.callback(self._listener.close)
        rendezvous.Descriptor(
            generation=self._config.cluster.generation,
            node=self._config.name,
            socket=str(self._folder / "node.sock"),
            progress=str(self._folder / "progress"),
            supervisor_pid=os.getpid(),
            supervisor_started=start_time(os.getpid()),
        ).write(self._folder)

    def _refuse_company(self, folder: Path) -> None:
        """Two nodes on one executor would share its rows."""
        try:
            other = rendezvous.Descriptor.read(folder)
        except (TfosError, FileNotFoundError):
            return
        if other.is_alive():
            raise ConfigError(
                f"the executor already serves {other.node} of cluster {other.generation}, so {self._config.name} can not be there",
                "Give each node an executor of its own: spark.task.cpus = spark.executor.cores; shut down other clusters first.",
            )

    def _register(self) -> None:
        cluster, slot = self._config.cluster, self._config.slot
        self._client = Client(
            (cluster.server_host, cluster.server_port), secret=bytes.fromhex(cluster.secret), right=Right.REGISTER, timeout=30.0
        )
        self._port_holder = net.hold_port()
        self._cleanup.callback(self._port_holder.close)
        self._client.register(
            NodeRecord(
                executor_id=slot.executor_id,
                role=slot.role,
                index=slot.index,
                host=self._client.local_host,
                port=self._port_holder.getsockname()[1],
                pid=os.getpid(),
                generation=cluster.generation,
            )
        )
        self._selector.register(self._client, selectors.EVENT_READ, self._on_driver)
        # what came together with the answer to the registration is already buffered and would not wake the selector
        self._on_driver()

    def _start_process(self, records: list[NodeRecord]) -> None:
        config, cluster = self._config, self._config.cluster
        spec = cluster_spec((record.role, record.index, f"{record.host}:{record.port}") for record in records)
        self._link, child_fd = link_pair()
        reading, writing = os.pipe()
        self._output = OutputRelay(
            reading, Path(config.working_dir) / f"tfos-{config.slot.role}-{config.slot.index}.log", self._send_output
        )
        passed = [child_fd] + ([self._listener.fileno()] if self._listener else [])
        try:
            self._process = subprocess.Popen(
                [config.python, "-m", "tfos_core.tf_process", str(child_fd)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=config.working_dir,
                env=process_environment(config, spec, self._user_secrets or {}, os.environ),
                pass_fds=passed,
            )
        finally:
            os.close(child_fd)
            os.close(writing)
        self._link.send(
            {
                "op": "start",
                "supervisor_pid": os.getpid(),
                "node": config.name,
                "generation": cluster.generation,
                "run_id": cluster.run_id,
                "executor_id": config.slot.executor_id,
                "role": config.slot.role,
                "index": config.slot.index,
                "cluster_spec": spec,
                "input_mode": cluster.input_mode,
                "default_fs": cluster.default_fs,
                "working_dir": config.working_dir,
                "num_epochs": cluster.num_epochs,
                "data": dict(cluster.data),
                "log_dir": cluster.log_dir,
                "listener_fd": self._listener.fileno() if self._listener else None,
                "progress_path": str(self._folder / "progress") if self._folder else None,
                "feed_budget_bytes": cluster.feed_budget_bytes,
            }
        )
        self._link.send_bytes(self._payload)
        self._payload = b""
        self._selector.register(self._link, selectors.EVENT_READ, self._on_process_message)
        self._selector.register(self._output, selectors.EVENT_READ, self._on_output)
        self._watch_process(self._process.pid)

    def _watch_process(self, pid: int) -> None:
        if hasattr(os, "pidfd_open"):
            self._process_fd = os.pidfd_open(pid)
            self._cleanup.callback(os.close, self._process_fd)
            self._selector.register(self._process_fd, selectors.EVENT_READ, self._on_process_end)

    # ---- what may happen ---------------------------------------------------------------------------------------------------

    def _on_driver(self) -> None:
        assert self._client is not None
        try:
            messages = self._client.receive_available()
        except (ChannelClosedError, TfosError) as exc:
            self._stop(f"the driver is gone: {exc}")
            self._finish()
            return
        for message in messages:
            self._on_driver_message(message)

    def _on_driver_message(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "node.secrets":
            self._user_secrets = dict(message["values"])
        elif op == "node.start":
            self._begin([NodeRecord.from_dict(record) for record in message["nodes"]])
        elif op == "node.stop":
            self._stop(message["reason"])
        elif self._link is not None and self._outcome is None:
            with contextlib.suppress(ChannelClosedError):
                self._link.send(message)

    def _begin(self, records: list[NodeRecord]) -> None:
        try:
            self._start_process(records)
        except OSError as exc:
            self._ended(Outcome(ok=False, error=f"the process of {self._config.name} could not be started: {exc}", lost=True))
            return
        self._send({"op": "node.started"})
        if not self._config.holds_task:
            self._tell_task({"op": "ready"})
            self._let_task_go()

    def _on_process_message(self) -> None:
        assert self._link is not None
        try:
            message = self._link.receive()
        except ChannelClosedError:
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None
            if not hasattr(os, "pidfd_open"):
                self._on_process_end()
            return
        op = message["op"]
        if op == "failed":
            self._reported = message
        elif op == "release_port":
            self._release_port()
            self._link.send({"op": "released"})
        elif op != "returned":
            self._send(message)

    def _release_port(self) -> None:
        if self._port_holder is not None:
            self._port_holder.close()

    def _on_output(self) -> None:
        assert self._output is not None
        if not self._output.read():
            self._selector.unregister(self._output)

    def _on_process_end(self) -> None:
        assert self._process is not None
        if self._process_fd is not None:
            self._selector.unregister(self._process_fd)
        status = self._process.wait()
        kill_descendants(os.getpid())
        while self._link is not None and self._link.wait(0):
            self._on_process_message()
        if self._output is not None:
            self._output.drain()
        self._kill_at = None
        self._ended(judge(self._config.name, status, self._reported, stopped=self._stop_reason is not None))

    def _on_jvm_end(self) -> None:
        self._kill_process(signal.SIGKILL)
        self._send_outcome(
            Outcome(
                ok=False, error=f"the executor of {self._config.name} died (JVM process {self._config.jvm_pid} ended)", lost=True
            )
        )
        self._finish()

    def _on_task(self) -> None:
        assert self._task is not None
        with contextlib.suppress(ChannelClosedError):
            self._task.receive()
            return
        self._let_task_go()
        if self._outcome is None:
            self._kill_process(signal.SIGKILL)
            self._send_outcome(Outcome(ok=False, error=f"Spark ended the task of {self._config.name}", lost=True, collateral=True))
            self._finish()

    def _on_time(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._kill_process(signal.SIGKILL)
        if not hasattr(os, "pidfd_open") and self._config.jvm_pid and not start_time(self._config.jvm_pid):
            self._on_jvm_end()

    def _timeout(self) -> float | None:
        waits = [] if self._kill_at is None else [max(0.0, self._kill_at - time.monotonic())]
        if not hasattr(os, "pidfd_open"):
            waits.append(_JVM_LOOK_S)
        return min(waits, default=None)

    # ---- end ---------------------------------------------------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        """End the user's process if it runs, then this one."""
        self._stop_reason = reason
        if self._process is not None and self._outcome is None:
            self._kill_process(signal.SIGTERM)
            self._kill_at = time.monotonic() + settings.STOP_GRACE_S
        else:
            self._tell_task({"op": "ended", "ok": True})
            self._finish()

    def _kill_process(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _ended(self, outcome: Outcome) -> None:
        self._send_outcome(outcome)
        if outcome.ok:
            self._tell_task({"op": "ended", "ok": True})
        else:
            self._tell_task({"op": "ended", "ok": False, "error": outcome.error, "traceback": outcome.traceback})
        if self._config.holds_task or self._stop_reason is not None:
            self._finish()
            return
        assert self._listener is not None
        self._refusal = Refusal(self._listener, node=self._config.name, generation=self._config.cluster.generation, uplink=self)
        self._cleanup.callback(self._refusal.stop)
        if outcome.ok:
            self._refusal.start("closed", None)
        else:
            self._refusal.start("failed", {"error": outcome.error, "traceback": outcome.traceback})

    def _send_outcome(self, outcome: Outcome) -> None:
        self._outcome = outcome
        lines = list(self._output.last_lines) if self._output is not None else []
        self._send({"op": "node.ended", **outcome.to_dict(), "last_lines": lines})

    def _finish(self) -> None:
        self._let_task_go()
        self._done = True

    # ---- telling others ----------------------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        """To the driver; when it is gone the selector says so, and that ends the node."""
        if self._client is not None:
            with contextlib.suppress(TfosError, OSError):
                self._client.send(message)

    def _send_output(self, lines: list[str], dropped: int) -> None:
        self._send({"op": "node.output", "lines": lines, "dropped": dropped})

    def send(self, message: dict[str, Any]) -> None:
        """For the refusal, which tells the driver which partitions it turned away; from any thread."""
        self._send(message)

    def _close_channel(self) -> None:
        if self._client is not None:
            self._client.close()

    def _tell_task(self, message: dict[str, Any]) -> None:
        if self._task is not None:
            with contextlib.suppress(ChannelClosedError):
                self._task.send(message)

    def _let_task_go(self) -> None:
        if self._task is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._task)
            self._task.close()
            self._task = None


def main() -> None:
    """Detach from the Spark task, then run one node."""
    if os.fork():
        # The second half of a double fork: the node's parent chain must not lead to Spark's Python worker.
        os._exit(0)
    become_subreaper()
    task = Link(int(sys.argv[1]))
    config = NodeConfig.from_dict(task.receive())
    payload = task.receive_bytes()
    Supervisor(config, payload, task).run()


if __name__ == "__main__":
    main()
