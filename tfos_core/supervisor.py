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
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tfos_core import net, settings
from tfos_core.adopted import AdoptedChildren, child_pipe
from tfos_core.errors import ChannelClosedError, TfosError
from tfos_core.feed.door import FeedDoor
from tfos_core.lingering import Lingering
from tfos_core.link import Link
from tfos_core.node_config import NodeConfig
from tfos_core.outcome import Outcome, judge
from tfos_core.processes import become_subreaper, has_pidfd, is_same_process, kill_descendants
from tfos_core.reservation import Client, NodeRecord, Right, reveal
from tfos_core.scratch import Scratch
from tfos_core.task_line import TaskLine
from tfos_core.tensorboard.node_side import NodeBoard
from tfos_core.timers import Timers
from tfos_core.user_process import UserProcess

__all__ = ("Supervisor", "main")

logger = logging.getLogger(__name__)

#: Where processes can only be looked at (no pidfd), how often, in seconds.
_LOOK_S = 1.0
#: A process whose function has failed may still run its exit handlers and wait for its threads, in seconds.
_FAILED_GRACE_S = 3.0
#: From the end of an executor's tasks to that of its JVM, in seconds.
_EXECUTOR_END_S = 2.0


class Supervisor:
    """One node from registration to its end; `run` returns when nothing of it is left.

    Args:
        child_ends: a file descriptor that becomes readable when a child has ended, also one that was adopted.
    """

    def __init__(self, config: NodeConfig, payload: bytes, task: Link, *, child_ends: int) -> None:
        self._config = config
        self._payload = payload
        self._selector = selectors.DefaultSelector()
        self._task = TaskLine(task, self._selector)
        self._cleanup = contextlib.ExitStack()
        self._client: Client | None = None
        self._door: FeedDoor | None = None
        self._port_holder: socket.socket | None = None
        self._scratch = Scratch()
        self._board = NodeBoard(config, send=self._send)
        self._process: UserProcess | None = None
        self._secrets: dict[str, str] = {}
        self._reported: dict[str, Any] | None = None
        self._outcome: Outcome | None = None
        self._stop_reason: str | None = None
        self._timers = Timers()
        self._lingering = Lingering(config, self._timers, send=self._send, end=self._end_lingering)
        self._adopted = AdoptedChildren(child_ends, self._timers, spare=self._awaited)
        self._jvm: int | None = None
        self._done = False
        self._has_pidfd = has_pidfd()

    def run(self) -> None:
        """Register, run the user's process, and stay until the driver lets go."""
        with self._cleanup:
            # The driver counts a node as gone when its channel closes, so that comes after everything else.
            self._cleanup.callback(self._close_channel)
            self._cleanup.callback(self._scratch.remove)
            self._cleanup.callback(kill_descendants, os.getpid())
            try:
                self._watch_jvm()
                self._open_door()
                self._register()
            except (TfosError, OSError) as exc:
                self._task.tell_end(f"{self._config.name} could not start: {exc}")
                return
            self._task.watch(self._on_task)
            self._selector.register(self._adopted, selectors.EVENT_READ, self._adopted.on_readable)
            try:
                while not self._done:
                    self._turn()
            except Exception as exc:
                logger.exception("the supervisor of %s failed", self._config.name)
                self._broke_down(exc)

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timeout()):
            # An earlier handler of this turn may have been the end of it, or of what this key stands for.
            if self._done:
                return
            if self._selector.get_map().get(key.fd) is key:
                handler: Callable[[], None] = key.data
                handler()
        self._on_time()

    # ---- start -------------------------------------------------------------------------------------------------------------

    def _watch_jvm(self) -> None:
        pid = self._config.jvm_pid
        if not pid or not self._has_pidfd:
            return
        fd = os.pidfd_open(pid)
        self._cleanup.callback(os.close, fd)
        self._jvm = fd
        if not is_same_process(pid, self._config.jvm_started):
            raise TfosError(f"the executor's JVM (pid {pid}) ended before its node started")
        self._selector.register(fd, selectors.EVENT_READ, self._on_jvm_end)

    def _open_door(self) -> None:
        if self._config.is_fed:
            self._door = FeedDoor(node=self._config.name, generation=self._config.cluster.generation, environ=os.environ)
            self._cleanup.callback(self._door.close)

    def _register(self) -> None:
        cluster, slot = self._config.cluster, self._config.slot
        address, secret = (cluster.server_host, cluster.server_port), bytes.fromhex(cluster.secret)
        # An executor that ends now ends the attempts to reach a driver that has ended before it.
        self._client = Client(address, secret=secret, right=Right.REGISTER, timeout=30.0, gone=self._jvm)
        self._port_holder = net.hold_port()
        self._cleanup.callback(self._port_holder.close)
        self._cleanup.callback(self._board.close)
        self._client.register(
            NodeRecord(
                executor_id=slot.executor_id,
                role=slot.role,
                index=slot.index,
                host=self._client.local_host,
                port=self._port_holder.getsockname()[1],
                pid=os.getpid(),
                tb_port=self._board.hold_port(os.environ),
                generation=cluster.generation,
                gpus=self._config.gpus,
            )
        )
        self._selector.register(self._client, selectors.EVENT_READ, self._on_driver)

    def _start_process(self, records: list[NodeRecord]) -> None:
        assert self._client is not None
        try:
            self._board.make_folder()
            folder = self._scratch.make({**os.environ, **self._config.cluster.environment})
            self._process = UserProcess(
                self._config, records, self._payload, secrets=self._secrets, door=self._door, temporary=folder, send=self._send
            )
        except OSError as exc:
            self._ended(Outcome(ok=False, error=f"the process of {self._config.name} could not be started: {exc}", lost=True))
            return
        self._payload = b""
        self._lingering.process = self._process
        self._cleanup.callback(self._process.close)
        self._selector.register(self._process.link, selectors.EVENT_READ, self._on_process_message)
        self._selector.register(self._process.output, selectors.EVENT_READ, self._on_output)
        if self._process.pidfd is not None:
            self._selector.register(self._process.pidfd, selectors.EVENT_READ, self._on_process_end)
        self._send({"op": "node.started"})
        self._board.start(self._client.local_host)
        if self._board.is_collecting:
            self._selector.register(self._board, selectors.EVENT_READ, self._on_collected)
        if not self._config.holds_task:
            self._task.tell({"op": "ready"})
            self._task.let_go()

    # ---- what may happen ---------------------------------------------------------------------------------------------------

    def _on_driver(self) -> None:
        assert self._client is not None
        try:
            messages = self._client.receive_available()
        except TfosError as exc:
            self._stop(f"the driver is gone: {exc}")
            self._done = True
            return
        for message in messages:
            if not self._done:
                self._on_driver_message(message)

    def _on_driver_message(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "node.secrets":
            self._secrets = reveal(bytes.fromhex(self._config.cluster.secret), message)
        elif op == "node.start":
            self._start_process([NodeRecord.from_dict(record) for record in message["nodes"]])
        elif op == "node.stop":
            self._stop(message["reason"])
        elif op == "node.ask_stacks":
            self._lingering.tell_stacks(str(message["why"]))
        elif op.startswith("files."):
            self._board.on_message(message)
        elif self._process is not None and self._outcome is None:
            self._process.send(message)

    def _on_process_message(self) -> None:
        assert self._process is not None
        link = self._process.link
        try:
            message = link.receive()
        except ChannelClosedError:
            self._selector.unregister(link)
            return
        op = message.get("op")
        if op == "failed":
            # What fails because it is being stopped says nothing.
            if self._stop_reason is None:
                self._reported = message
                self._timers.set("kill", _FAILED_GRACE_S, self._kill)
        elif op == "returned":
            self._lingering.returned()
        elif op == "release_port":
            assert self._port_holder is not None
            self._port_holder.close()
            self._process.send({"op": "released"})
        else:
            self._send(message)

    def _hear_process(self) -> None:
        """Take what the process has said so far."""
        assert self._process is not None
        link = self._process.link
        with contextlib.suppress(ChannelClosedError):
            while link in self._selector.get_map() and link.wait(0):
                self._on_process_message()

    def _on_output(self) -> None:
        assert self._process is not None
        if not self._process.output.read():
            self._selector.unregister(self._process.output)

    def _on_process_end(self) -> None:
        assert self._process is not None
        if self._process.pidfd is not None:
            self._selector.unregister(self._process.pidfd)
        status = self._process.wait()
        self._lingering.process = None
        kill_descendants(os.getpid(), spare=self._board.pid)
        if self._outcome is not None:
            return
        self._hear_process()
        self._process.output.drain()
        self._timers.cancel("kill", "warn")
        self._board.program_ended()
        self._ended(judge(self._config.name, status, self._reported, stopped=self._stop_reason is not None))

    def _on_collected(self) -> None:
        self._selector.unregister(self._board)
        if "leave" in self._timers:
            self._done = True

    def _on_jvm_end(self) -> None:
        if self._jvm is not None:
            self._selector.unregister(self._jvm)
            self._jvm = None
        error = f"the executor of {self._config.name} died (JVM process {self._config.jvm_pid} ended)"
        self._end_now(Outcome(ok=False, error=error, lost=True))

    def _on_task(self) -> None:
        if not self._task.has_ended():
            return
        self._task.let_go()
        # An executor that ends ends its tasks first; its own end says more.
        self._timers.set("task", _EXECUTOR_END_S if self._jvm is not None else 0.0, self._on_task_lost)

    def _on_task_lost(self) -> None:
        if self._outcome is None:
            # Spark also ends the tasks of healthy nodes when another one's fails.
            self._end_now(Outcome(ok=False, error=f"Spark ended the task of {self._config.name}", lost=True, collateral=True))

    def _on_time(self) -> None:
        self._timers.run_due()
        if not self._has_pidfd:
            self._look()

    def _look(self) -> None:
        pid = self._config.jvm_pid
        if pid and not is_same_process(pid, self._config.jvm_started):
            self._on_jvm_end()
        elif self._process is not None and self._outcome is None and not self._process.is_running:
            self._on_process_end()

    def _timeout(self) -> float | None:
        left = self._timers.seconds_left()
        return left if self._has_pidfd else min(_LOOK_S, _LOOK_S if left is None else left)

    # ---- end ---------------------------------------------------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        """End the user's process if it runs, then this one."""
        if self._process is not None and self._outcome is None:
            # A failure that it told of before counts.
            self._hear_process()
        self._stop_reason = reason
        if self._door is not None:
            self._door.leave_word(reason)
        if self._process is not None and self._outcome is None:
            self._kill(signal.SIGTERM)
            self._timers.set("kill", settings.STOP_GRACE_S, self._kill, sooner_only=True)
        else:
            self._task.tell_end()
            self._finish()

    def _end_now(self, outcome: Outcome) -> None:
        self._kill()
        if self._outcome is None:
            self._send_outcome(outcome)
        self._finish()

    def _broke_down(self, exc: Exception) -> None:
        error = f"the supervisor of {self._config.name} failed: {type(exc).__name__}: {exc}"
        self._task.tell_end(error)
        if self._outcome is None:
            self._send_outcome(Outcome(ok=False, error=error, lost=True))

    def _kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.kill(number)

    def _end_lingering(self, reported: dict[str, Any]) -> None:
        if self._stop_reason is None:
            self._reported = reported
        self._kill()

    def _awaited(self) -> set[int]:
        """The children whose ends are noticed elsewhere."""
        own = {self._process.pid} if self._process is not None else set()
        return own | ({self._board.pid} if self._board.pid is not None else set())

    def _leave(self) -> None:
        self._board.tell_left_behind()
        self._done = True

    def _ended(self, outcome: Outcome) -> None:
        self._send_outcome(outcome)
        self._task.tell_end(None if outcome.ok else outcome.error, outcome.traceback)
        if self._stop_reason is not None or (self._door is None and self._board.pid is None):
            self._finish()
        elif self._door is not None:
            self._door.refuse(None if outcome.ok else {"error": outcome.error, "traceback": outcome.traceback}, self)

    def _send_outcome(self, outcome: Outcome) -> None:
        self._outcome = outcome
        lines = list(self._process.output.last_lines) if self._process is not None else []
        self._send({"op": "node.ended", **outcome.to_dict(), "last_lines": lines})

    def _finish(self) -> None:
        """Leave, once the driver has the rest of the event files, or when the time for that is over."""
        self._task.let_go()
        if not self._board.is_collecting:
            self._done = True
            return
        self._board.program_ended()
        rest = settings.COLLECT_REST_S if self._stop_reason is None else settings.COLLECT_LAST_S
        self._timers.set("leave", rest, self._leave, sooner_only=True)

    # ---- telling others ----------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """For the feed's refusal, which tells the driver which partitions it turned away; from any thread."""
        self._send(message)

    def _send(self, message: Mapping[str, Any]) -> None:
        """To the driver; when it is gone the selector says so, and that ends the node."""
        if self._client is not None:
            with contextlib.suppress(TfosError, OSError):
                self._client.send(message)

    def _close_channel(self) -> None:
        if self._client is not None:
            self._client.close()


def main() -> None:
    """Detach from the Spark task, then run one node."""
    if os.fork():
        # The second half of a double fork: the node's parent chain must not lead to Spark's Python worker.
        os._exit(0)
    become_subreaper()
    task = Link(int(sys.argv[1]))
    config = NodeConfig.from_dict(task.receive())
    payload = task.receive_bytes()
    # Without a handler the signal is discarded, and the wakeup descriptor hears nothing.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    Supervisor(config, payload, task, child_ends=child_pipe()).run()


if __name__ == "__main__":
    main()
