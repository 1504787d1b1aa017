"""Real supervisors: the test is the driver and the Spark task, and `sleep` is the executor's JVM."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from fakes import node_programs
from testbed.processes import Process, list_processes, read_process, wait_until_gone
from testbed.waiting import poll_until

from tfos_core.errors import ChannelClosedError, NodeFailedError
from tfos_core.feed import rendezvous, wire
from tfos_core.feed.progress import ProgressReader
from tfos_core.link import Link
from tfos_core.node import follow_node, start_node
from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.processes import descendants, process_state, start_time
from tfos_core.reservation import NodeRecord, Server, conceal
from tfos_core.topology import InputMode, NodeSlot, Role

WAIT_S = 30.0
NAMES = tuple(f"worker:{index}" for index in range(8))


class Node:
    """One supervisor as its driver and its task see it."""

    def __init__(self, config: NodeConfig, jvm: subprocess.Popen[bytes]) -> None:
        self.config = config
        self.jvm = jvm
        self.link: Link
        self.supervisor: Process | None = None
        self.messages: list[dict[str, Any]] = []
        self.record: NodeRecord | None = None
        self.gone = False
        self.changed = threading.Condition()

    def hear(self, message: dict[str, Any]) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        with self.changed:
            found = self.changed.wait_for(condition, WAIT_S)
            there = [{name: str(value)[-300:] for name, value in message.items()} for message in self.messages]
            assert found, f"{what} did not come; there is {there}\n{self.log()}"
            return found

    def expect(self, op: str) -> dict[str, Any]:
        return self.wait(op, lambda: next((message for message in self.messages if message["op"] == op), None))

    def has_said(self, op: str) -> bool:
        return any(message["op"] == op for message in self.messages)

    @property
    def lines(self) -> list[str]:
        return [line for message in self.messages if message["op"] == "node.output" for line in message["lines"]]

    def expect_line(self, start: str) -> str:
        return self.wait(f"line {start!r}", lambda: next((line for line in self.lines if line.startswith(start)), None))

    def grandchild(self) -> Process:
        found = read_process(int(self.expect_line("grandchild").split()[1]))
        assert found is not None
        return found

    def log(self) -> str:
        return (Path(self.config.working_dir) / f"tfos-worker-{self.config.slot.index}-supervisor.log").read_text()

    def assert_gone(self) -> None:
        """The channel closed, and no process is left."""
        self.wait("the end of the channel", lambda: self.gone)
        assert self.supervisor is not None
        assert not wait_until_gone([self.supervisor], WAIT_S)


class Bench:
    """A driver for up to eight nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, Node] = {}
        self.server = Server(
            NAMES,
            on_message=lambda node, message: self.nodes[node].hear(message),
            on_registered=self._on_registered,
            on_disconnect=self._on_disconnect,
            host="127.0.0.1",
            environ={},
        )
        self.server.start()

    def _on_registered(self, record: NodeRecord) -> None:
        node = self.nodes[record.name]
        with node.changed:
            node.record = record
            node.supervisor = read_process(record.pid)
            node.changed.notify_all()

    def _on_disconnect(self, name: str) -> None:
        node = self.nodes[name]
        with node.changed:
            node.gone = True
            node.changed.notify_all()

    def configure(self, index: int, *, fed: bool = False, python: str = sys.executable, **environment: str) -> Node:
        jvm = subprocess.Popen(["sleep", "600"])
        host, port = self.server.address
        cluster = ClusterConfig(
            run_id="run",
            generation="0123",
            server_host=host,
            server_port=port,
            secret=self.server.secret.hex(),
            has_user_secrets=False,
            input_mode=InputMode.SPARK if fed else InputMode.TENSORFLOW,
            reservation_timeout=30,
            release_port=True,
            environment=environment,
            keras=None,
            threads=1,
            default_fs="file://",
            num_epochs=1,
            data={},
            log_dir=None,
        )
        config = NodeConfig(
            cluster=cluster,
            slot=NodeSlot(executor_id=index, role=Role.WORKER, index=index),
            jvm_pid=jvm.pid,
            jvm_started=start_time(jvm.pid),
            working_dir=str(self.folder),
            python=python,
            python_path=os.pathsep.join(path for path in sys.path if path),
        )
        node = self.nodes[config.name] = Node(config, jvm)
        return node

    def launch(self, node: Node, program: Callable[..., None], args: Any = None) -> Node:
        """Start the supervisor; it registers and then waits for the driver."""
        node.link = start_node(node.config, pickle.dumps((program, args)))
        return node

    def register(self, node: Node, program: Callable[..., None] = node_programs.wait, args: Any = None) -> Node:
        self.launch(node, program, args)
        node.wait("registration", lambda: node.record)
        return node

    def start(self, index: int, program: Callable[..., None], args: Any = None, **options: Any) -> Node:
        """Have a node run the program."""
        node = self.register(self.configure(index, **options), program, args)
        self.tell(node, "node.start", nodes=[record.to_dict() for record in self.server.reservations.get()])
        return node

    def tell(self, node: Node, op: str, **fields: Any) -> None:
        self.server.send(node.config.name, {"op": op, **fields})

    def stop(self, node: Node) -> None:
        self.tell(node, "node.stop", reason="the test is over")

    def close(self) -> None:
        self.server.stop()
        for node in self.nodes.values():
            node.jvm.kill()
            node.jvm.wait()
            if hasattr(node, "link"):
                node.link.close()
        left = [node.supervisor for node in self.nodes.values() if node.supervisor is not None]
        assert not wait_until_gone(left, WAIT_S)


@pytest.fixture
def bench(nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_node_runs_the_function_with_its_own_environment_and_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "of somebody else")
    node = bench.register(bench.configure(0, PLAIN="plain"), node_programs.show, {"a": 1})
    assert node.record is not None
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("0.0.0.0", node.record.port))
    bench.tell(node, "node.secrets", **conceal(bench.server.secret, {"SECRET": "hidden"}))
    bench.tell(node, "node.start", nodes=[node.record.to_dict()])
    node.expect("node.started")
    ended = node.expect("node.ended")
    seen = json.loads(node.expect_line("{"))
    assert ended["ok"]
    assert seen["args"] == {"a": 1}
    assert (seen["SECRET"], seen["PLAIN"], seen["TFOS_NODE"]) == ("hidden", "plain", "run:0123:worker:0")
    assert json.loads(seen["TF_CONFIG"])["cluster"] == {"worker": [f"127.0.0.1:{node.record.port}"]}
    assert seen["cwd"] == str(bench.folder)
    follow_node(node.link, node.config)
    node.assert_gone()
    assert "hidden" not in node.log()


def test_output_of_any_bytes_reaches_the_driver_and_is_copied_whole(bench: Bench) -> None:
    node = bench.start(0, node_programs.print_strange_bytes)
    assert node.expect("node.ended")["ok"]
    assert node.lines[0] == "caf\ufffd"
    assert node.lines[-1] == "the end"
    assert max(map(len, node.lines)) <= 8 * 1024
    copy = (bench.folder / "tfos-worker-0.log").read_bytes()
    assert copy == b"caf\xe9\r\n" + b"x" * node_programs.LONG_LINE + b"\nthe end"


def test_every_bad_end_is_told_with_its_reason(bench: Bench) -> None:
    killed = bench.start(0, node_programs.die, int(signal.SIGKILL))
    silent = bench.start(1, node_programs.leave_with, 3)
    exited = bench.start(2, node_programs.call_exit, "no data")
    raised = bench.start(3, node_programs.fail, KeyError("missing"))
    long = bench.start(4, node_programs.fail_at_length)
    textless = bench.start(5, node_programs.fail_without_text)
    ends = [node.expect("node.ended") for node in (killed, silent, exited, raised, long, textless)]
    assert not any(end["ok"] or end["lost"] for end in ends)
    assert (ends[0]["signal"], ends[0]["last_lines"]) == (9, ["last words"])
    assert "signal 9 (SIGKILL)" in ends[0]["error"]
    assert ends[1]["exit_code"] == 3
    assert ends[2]["error"] == "sys.exit(1) was called (no data)"
    assert ends[3]["error"] == "KeyError: 'missing'"
    assert "raise args" in ends[3]["traceback"]
    assert any("KeyError" in line for line in ends[3]["last_lines"])
    assert ends[4]["error"].startswith("ValueError: firstx") and ends[4]["error"].endswith("xlast")
    assert len(ends[4]["error"]) < 20_000 and len(ends[4]["traceback"]) < 300_000
    assert ends[5]["error"].startswith("UnprintableError: ")
    with pytest.raises(NodeFailedError, match="KeyError: 'missing'") as caught:
        follow_node(raised.link, raised.config)
    assert "raise args" in caught.value.remote_traceback
    for node in (killed, silent, exited, raised, long, textless):
        node.assert_gone()


def test_what_the_function_leaves_or_breaks_does_not_make_a_good_end_bad(bench: Bench) -> None:
    left = bench.start(0, node_programs.leave_grandchild)
    closed = bench.start(1, node_programs.close_descriptors)
    forked = bench.start(2, node_programs.fork_child_that_fails)
    exited = bench.start(3, node_programs.call_exit, 0)
    ends = [node.expect("node.ended") for node in (left, closed, forked, exited)]
    assert [(end["ok"], end["error"]) for end in ends] == [(True, "")] * 4
    assert "child ended with 1" in forked.lines
    grandchild = read_process(int(left.expect_line("grandchild").split()[1]))
    assert grandchild is None or not wait_until_gone([grandchild], 0)
    for node in (left, closed, forked, exited):
        node.assert_gone()


def test_release_port_lets_the_function_bind_the_port(bench: Bench) -> None:
    node = bench.start(0, node_programs.release)
    assert node.expect("node.ended")["ok"]
    assert node.lines == ["before False", "after True"]


def test_stop_ends_the_process_and_its_descendants(bench: Bench) -> None:
    node = bench.start(0, node_programs.wait)
    grandchild = node.grandchild()
    bench.stop(node)
    ended = node.expect("node.ended")
    assert (ended["ok"], ended["error"]) == (True, "")
    assert not wait_until_gone([grandchild], WAIT_S)
    assert node.link.receive() == {"op": "ended", "ok": True}
    node.assert_gone()


def test_processes_that_do_not_end_are_killed(bench: Bench) -> None:
    failed = bench.start(0, node_programs.fail_beside_a_thread)
    deaf = bench.start(1, node_programs.ignore_sigterm)
    deaf.expect_line("ready")
    bench.stop(deaf)
    bench.stop(deaf)
    assert deaf.expect("node.ended")["ok"]
    deaf.assert_gone()
    ended = failed.expect("node.ended")
    assert (ended["ok"], ended["error"], ended["signal"]) == (False, "ValueError: the reason", None)


def test_a_stop_does_not_hide_a_failure_that_came_before(bench: Bench) -> None:
    node = bench.start(0, node_programs.fail_beside_a_thread, fed=True)
    # The feed says so after the failure was told, over the same link.
    node.expect("feed.closed")
    bench.stop(node)
    ended = node.expect("node.ended")
    assert (ended["ok"], ended["error"]) == (False, "ValueError: the reason")
    node.assert_gone()


def test_temporary_files_go_with_the_node_also_when_its_supervisor_is_killed(bench: Bench) -> None:
    stopped, lost = (bench.start(index, node_programs.leave_temporary_file) for index in range(2))
    files = [Path(node.expect_line("temporary").split()[1]) for node in (stopped, lost)]
    assert all(file.exists() and file.parent.name.startswith("tfos-tmp-") for file in files)
    bench.stop(stopped)
    stopped.assert_gone()
    assert [file.parent.exists() for file in files] == [False, True]
    assert lost.supervisor is not None
    os.kill(lost.supervisor.pid, signal.SIGKILL)
    lost.assert_gone()
    with pytest.raises(NodeFailedError, match="ended without a word"):
        follow_node(lost.link, lost.config)
    assert not files[1].parent.exists()


def test_a_stop_before_the_start_starts_nothing(bench: Bench) -> None:
    node = bench.register(bench.configure(0))
    bench.server.broadcast({"op": "node.stop", "reason": "another node failed"})
    with contextlib.suppress(ChannelClosedError):
        bench.tell(node, "node.start", nodes=[])
    follow_node(node.link, node.config)
    node.assert_gone()
    assert not node.has_said("node.started")
    assert not (bench.folder / "tfos-worker-0.log").exists()


def test_the_end_of_the_jvm_ends_everything(bench: Bench) -> None:
    running = bench.start(0, node_programs.wait)
    waiting = bench.register(bench.configure(1))
    grandchild = running.grandchild()
    for node in (running, waiting):
        node.jvm.kill()
        ended = node.expect("node.ended")
        assert ended["lost"] and f"JVM process {node.jvm.pid} ended" in ended["error"]
        node.assert_gone()
    assert not wait_until_gone([grandchild], WAIT_S)


def test_the_end_of_the_driver_ends_everything(bench: Bench) -> None:
    running = bench.start(0, node_programs.wait, fed=True)
    grandchild = running.grandchild()
    folder = rendezvous.executor_folder(os.environ)
    assert folder.exists()
    bench.server.stop()
    assert running.supervisor is not None
    assert not wait_until_gone([running.supervisor, grandchild], WAIT_S)
    assert not folder.exists()


def test_the_end_of_the_task_ends_a_node_that_holds_it(bench: Bench) -> None:
    node = bench.start(0, node_programs.wait)
    grandchild = node.grandchild()
    node.link.close()
    ended = node.expect("node.ended")
    assert (ended["ok"], ended["lost"], ended["collateral"]) == (False, True, True)
    node.assert_gone()
    assert not wait_until_gone([grandchild], WAIT_S)


def test_an_executor_that_ends_its_task_first_is_what_is_told(bench: Bench) -> None:
    node = bench.start(0, node_programs.wait)
    node.expect_line("grandchild")
    node.link.close()
    node.jvm.kill()
    ended = node.expect("node.ended")
    assert (ended["lost"], ended["collateral"]) == (True, False)
    assert f"the executor of worker:0 died (JVM process {node.jvm.pid} ended)" in ended["error"]
    node.assert_gone()


def ask(partition: int) -> tuple[wire.Op, dict[str, Any]]:
    """What a feed task hears."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(WAIT_S)
        sock.connect(rendezvous.Descriptor.read(rendezvous.executor_folder(os.environ)).socket)
        hello = {"generation": "0123", "mode": wire.Mode.TRAIN, "seq": 0, "call": 0, "partition": partition, "attempt": 0}
        sock.sendall(wire.pack_json(wire.Op.HELLO, hello))
        header = wire.read_header(sock)
        assert header is not None
        return header.op, wire.read_json(sock, header.length)


@pytest.mark.parametrize(
    ("program", "answer", "text"), [("show", wire.Op.CLOSED, ""), ("fail", wire.Op.FAILED, "ValueError: the reason")]
)
def test_a_fed_node_answers_feed_tasks_after_its_end_until_it_is_stopped(
    bench: Bench, program: str, answer: wire.Op, text: str
) -> None:
    node = bench.start(0, getattr(node_programs, program), ValueError("the reason") if text else None, fed=True)
    assert node.link.receive() == {"op": "ready"}
    with pytest.raises(ChannelClosedError):
        node.link.receive()
    assert node.expect("node.ended")["ok"] is not bool(text)
    op, said = ask(partition=7)
    assert op is answer
    assert said.get("error", "") == text
    assert node.expect("feed.discarded")["partition"] == 7
    folder = rendezvous.executor_folder(os.environ)
    bench.stop(node)
    node.assert_gone()
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd_create here")
def test_a_fed_node_tells_its_progress_through_memory_and_not_through_a_disk(bench: Bench) -> None:
    node = bench.start(0, node_programs.show_mappings, fed=True)
    found = json.loads(node.expect_line("["))
    assert [Path(path).name for path in found] == ["memfd:tfos-progress (deleted)"]
    progress = Path(rendezvous.Descriptor.read(rendezvous.executor_folder(os.environ)).progress)
    reader = ProgressReader(progress)
    # The program has noted that a row was consumed; its process has ended, and the supervisor has not.
    assert node.expect("node.ended")["ok"]
    assert reader.last_consumed() > 0.0
    reader.close()
    bench.stop(node)
    node.assert_gone()
    assert ProgressReader(progress).last_consumed() == 0.0


def test_a_second_node_on_an_executor_is_refused_with_both_names(bench: Bench) -> None:
    first = bench.register(bench.configure(0, fed=True))
    second = bench.launch(bench.configure(1, fed=True), node_programs.wait)
    with pytest.raises(NodeFailedError, match=r"already serves worker:0.*so worker:1 can not be there"):
        follow_node(second.link, second.config)
    bench.stop(first)
    first.assert_gone()


def test_a_jvm_that_is_another_one_with_the_same_pid_is_noticed(bench: Bench) -> None:
    node = bench.configure(0)
    node.config = replace(node.config, jvm_started=node.config.jvm_started + 1)
    bench.launch(node, node_programs.wait)
    with pytest.raises(NodeFailedError, match="ended before its node started"):
        follow_node(node.link, node.config)


def test_a_supervisor_that_breaks_down_says_so(bench: Bench) -> None:
    node = bench.start(0, node_programs.wait, NUL="a\0b")
    ended = node.expect("node.ended")
    assert ended["lost"] and "the supervisor of worker:0 failed: ValueError: embedded null byte" in ended["error"]
    with pytest.raises(NodeFailedError, match="embedded null byte"):
        follow_node(node.link, node.config)
    node.assert_gone()


def test_a_large_function_arrives_although_the_process_talks_before_it_listens(bench: Bench, tmp_path: Path) -> None:
    early = tmp_path / "early"
    early.mkdir()
    # More than a pipe holds, from a process that does not read its link yet.
    (early / "sitecustomize.py").write_text("import os, sys\nif 'TFOS_NODE' in os.environ: os.write(1, b'early\\n' * 50_000)\n")
    node = bench.start(0, node_programs.print_before, b"x" * 5_000_000, PYTHONPATH=str(early))
    assert node.expect("node.ended")["ok"]
    assert (bench.folder / "tfos-worker-0.log").read_bytes().endswith(b"early\nran with 5000000\n")
    assert sum(message["dropped"] for message in node.messages if message["op"] == "node.output") + len(node.lines) == 50_001


def test_without_pidfds_the_ends_are_noticed_too(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "old_kernel.py").write_text(
        "import os, runpy, sys\ndel os.pidfd_open\ndel sys.argv[:2]\n"
        "runpy.run_module(sys.argv[0], alter_sys=True, run_name='__main__')\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/old_kernel.py "$@"\n')
    python.chmod(0o700)
    ending = bench.start(0, node_programs.call_exit, 5, python=str(python))
    orphaned = bench.start(1, node_programs.wait, python=str(python))
    assert ending.expect("node.ended")["error"] == "sys.exit(5) was called"
    orphaned.jvm.kill()
    orphaned.jvm.wait()
    assert orphaned.expect("node.ended")["lost"]
    orphaned.assert_gone()


def test_a_stuck_process_says_where_it_is_and_its_log_has_all_threads(bench: Bench) -> None:
    node = bench.start(0, node_programs.ignore_sigterm)
    node.expect_line("ready")
    bench.tell(node, "node.ask_stacks", why="no row was taken")
    answer = node.expect("node.stacks")
    assert answer["place"].startswith("ignore_sigterm (node_programs.py:")
    assert "in ignore_sigterm" in answer["stack"].splitlines()[-1]
    assert answer["last_lines"] == ["ready"]
    node.expect_line("[tfos] the stacks of worker:0, because no row was taken:")
    assert any("tfos_core/tf_process.py" in line and "in listen" in line for line in node.lines)
    assert b"[tfos] the stacks of worker:0" in (bench.folder / "tfos-worker-0.log").read_bytes()
    bench.stop(node)
    assert node.expect("node.ended")["ok"]
    node.assert_gone()


def test_a_process_that_is_stopped_or_is_not_there_has_no_stacks(bench: Bench) -> None:
    stopped, waiting = bench.start(0, node_programs.wait), bench.register(bench.configure(1))
    child = next(process for process in list_processes() if process.environment.get("TFOS_NODE") == "run:0123:worker:0")
    stopped.grandchild()
    os.kill(child.pid, signal.SIGSTOP)
    for node in (stopped, waiting):
        bench.tell(node, "node.ask_stacks", why="somebody asks")
        assert node.expect("node.stacks") == {"op": "node.stacks", "place": "", "stack": "", "last_lines": ANY}
    assert stopped.expect_line("it does not say where it is (state T of")
    os.kill(child.pid, signal.SIGKILL)
    assert stopped.expect("node.ended")["signal"] == signal.SIGKILL
    bench.stop(waiting)
    for node in (stopped, waiting):
        node.assert_gone()


def test_a_thread_that_keeps_the_process_is_told_and_bounded(bench: Bench) -> None:
    ending, staying = bench.configure(0), bench.configure(1)
    staying.config = replace(staying.config, cluster=replace(staying.config.cluster, exit_limit_s=1.0))
    for node, seconds in ((ending, 0.2), (staying, 600)):
        bench.register(node, node_programs.leave_a_thread, seconds)
        bench.tell(node, "node.start", nodes=[record.to_dict() for record in bench.server.reservations.get()])
    assert ending.expect("node.ended")["ok"]
    assert "threads of it still run" in staying.expect("node.warning")["message"]
    ended = staying.expect("node.ended")
    assert (ended["ok"], ended["lost"]) == (False, False)
    assert ended["error"] == "the function returned, and its process had not ended 1 s later: threads of it still ran"
    assert "in linger" in ended["traceback"]
    assert not ending.has_said("node.warning")
    for node in (ending, staying):
        node.assert_gone()


def test_grandchildren_that_have_ended_are_no_zombies(bench: Bench) -> None:
    node = bench.start(0, node_programs.leave_many_grandchildren, 20)
    node.expect_line("all were started")
    assert node.supervisor is not None
    pid = node.supervisor.pid

    def zombies() -> list[int]:
        return [other for other in descendants(pid) if process_state(other) == "Z"]

    poll_until(lambda: not zombies(), WAIT_S, what=lambda: f"no zombies; there are {zombies()}")
    assert not node.has_said("node.ended")
    bench.stop(node)
    assert node.expect("node.ended")["ok"]
    node.assert_gone()
