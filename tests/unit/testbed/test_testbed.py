"""The testbed sees what it is there to see."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.commandline import Outcome, TfosProcess, split_line
from testbed.leaks import find_leftovers, take_snapshot
from testbed.processes import MARK, descendants, kill_all, kill_group, list_processes, marked, read_process, start_child
from testbed.session import Session
from testbed.sockets import list_listeners, parse_tcp_table, parse_unix_table
from testbed.waiting import poll_until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
DAEMONISE = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
pid = os.fork()
if pid:
    print(pid, flush=True)
    os._exit(0)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
import time
time.sleep(60)
"""
PARENT_THAT_DIES = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from testbed.processes import start_child
child = start_child({SLEEPER!r}, environment=dict(os.environ), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def daemon(testbed_session: Session) -> Iterator[int]:
    """A process that nobody's descendant list shows."""
    started = subprocess.run([sys.executable, "-c", DAEMONISE], stdout=subprocess.PIPE, text=True, check=True, timeout=20)
    pid = int(started.stdout)
    yield pid
    process = read_process(pid)
    if process is not None:
        kill_all([process])


def test_poll_until_returns_what_the_predicate_found() -> None:
    answers = iter([0, "", "here"])
    assert poll_until(lambda: next(answers), 5) == "here"


def test_poll_until_fails_at_its_deadline_and_says_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"after 0.02 s still not: the moon"):
        poll_until(lambda: False, 0.02, what="the moon")


def test_a_daemonised_process_is_found_by_the_mark_of_the_session(testbed_session: Session, daemon: int) -> None:
    assert daemon not in {process.pid for process in descendants(os.getpid())}
    assert daemon in {process.pid for process in marked(testbed_session.mark)}


def test_a_process_of_somebody_else_is_not_ours(testbed_session: Session) -> None:
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    child = start_child(SLEEPER, environment=environment, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in {process.pid for process in list_processes()}
        assert child.pid not in {process.pid for process in marked(testbed_session.mark)}
    finally:
        kill_group(child)
        child.stdout.close()


def test_a_process_that_stays_is_a_leftover(testbed_session: Session) -> None:
    before = take_snapshot(testbed_session.mark)
    assert not find_leftovers(before)
    child = start_child(SLEEPER, environment=os.environ, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert str(child.pid) in str(find_leftovers(before))
    finally:
        kill_group(child)
        child.stdout.close()
    assert not find_leftovers(before)


def test_sockets_that_stay_are_leftovers(testbed_session: Session) -> None:
    before = take_snapshot(testbed_session.mark)
    path = testbed_session.temporary / "left.sock"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        assert {entry.where for entry in find_leftovers(before).listeners} == {f"tcp {tcp.getsockname()[1]}", f"unix {path}"}
    path.unlink()
    assert not find_leftovers(before)


def test_files_and_empty_folders_that_stay_are_leftovers(testbed_session: Session, tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    before = take_snapshot(testbed_session.mark, [tmp_path, tmp_path / "not-there"])
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_leftovers(before).files == (tmp_path / "a", tmp_path / "a" / "b")


def test_a_child_dies_with_a_test_run_that_is_killed() -> None:
    parent = subprocess.run([sys.executable, "-c", PARENT_THAT_DIES], stdout=subprocess.PIPE, text=True, timeout=20)
    assert parent.returncode == -signal.SIGKILL
    poll_until(lambda: read_process(int(parent.stdout)) is None, 5, what="the child is gone")


def test_the_socket_tables_are_read_as_the_kernel_writes_them() -> None:
    tcp = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:9EDB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 52631 1 0 100 0 0 10 0\n"
        "   1: 0100007F:9EDC 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 52632 1 0 100 0 0 10 0\n"
    )
    unix = (
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 22222 /tmp/with blank\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 33333\n"
    )
    assert parse_tcp_table(tcp) == {52631: "tcp 40667"}
    assert parse_unix_table(unix) == {22222: "unix /tmp/with blank"}


def test_only_listening_sockets_of_the_process_asked_for_are_listed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        found = {entry.where for entry in list_listeners([os.getpid()])}
        assert f"tcp {server.getsockname()[1]}" in found
        assert f"tcp {client.getsockname()[1]}" not in found


def test_an_unexpected_exit_code_shows_both_streams() -> None:
    outcome = Outcome(line="tfos train", exit_code=2, stdout="out", stderr="err")
    assert outcome.check(2) is outcome
    with pytest.raises(AssertionError, match=r"exited 2, not 0\n--- stdout\nout\n--- stderr\nerr"):
        outcome.check(0)


def test_a_line_starts_with_tfos() -> None:
    assert split_line("tfos train 'a b.yaml'") == ["train", "a b.yaml"]
    with pytest.raises(AssertionError, match="starts with 'tfos'"):
        split_line("train job.yaml")


def test_an_event_is_waited_for_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import signal, sys, time
def stop(*_):
    print('{"event": "result", "exit_code": 130}', flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
print('not an event')
print('{"event": "cluster_ready"}', flush=True)
print('on stderr', file=sys.stderr, flush=True)
time.sleep(60)
"""
    monkeypatch.setattr("testbed.commandline.tfos_command", lambda: [sys.executable, "-c", script])
    with TfosProcess("tfos anything", environment=os.environ) as process:
        assert process.wait_for_event("cluster_ready", 20) == {"event": "cluster_ready"}
        process.wait_for_text("on stderr", 20)
        process.signal(signal.SIGINT)
        assert process.wait_for_event("result", 20)["exit_code"] == 130
        process.wait(20, exit_code=130)
        with pytest.raises(AssertionError, match="ended without event 'node_failed'"):
            process.wait_for_event("node_failed", 20)


def test_the_temporary_folder_leaves_room_for_unix_sockets(testbed_session: Session) -> None:
    longest = testbed_session.own_folder / ("0" * 16) / "feed.sock"
    assert len(str(longest)) < 80
