from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.waiting import poll_until

from tfos_core import processes
from tfos_core.settings import MARK_VARIABLE, SUPERVISOR_VARIABLE

WAIT_S = 20.0


class Shell:
    """A process that runs a shell command, prints, and waits."""

    def __init__(self, command: str, *, program: str = "/bin/sh", environment: dict[str, str] | None = None) -> None:
        self.popen = subprocess.Popen(
            [program, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self.pid = self.popen.pid

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait(WAIT_S)
        for stream in (self.popen.stdin, self.popen.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def shells() -> Iterator[list[Shell]]:
    started: list[Shell] = []
    yield started
    for shell in started:
        processes.kill_descendants(shell.pid)
        shell.close()


def test_a_process_is_itself_and_no_other_with_its_pid() -> None:
    started = processes.start_time(os.getpid())
    assert started > 0
    assert processes.is_same_process(os.getpid(), started)
    assert not processes.is_same_process(os.getpid(), started + 1)
    assert processes.parent_of(os.getpid()) == os.getppid()


def test_a_zombie_is_not_the_process_any_more(shells: list[Shell]) -> None:
    shell = Shell("exit 0")
    shells.append(shell)
    started = processes.start_time(shell.pid)
    os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_same_process(shell.pid, started)


def test_what_does_not_exist_has_no_start_and_no_parent() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(WAIT_S)
    assert (processes.start_time(gone.pid), processes.parent_of(gone.pid)) == (0, 0)
    assert not processes.is_same_process(gone.pid, 0)


def test_names_of_processes_may_be_any_bytes(shells: list[Shell]) -> None:
    # 15 bytes of a longer name can end in the middle of a character, and hold spaces and brackets.
    shell = Shell(r"printf '\377) S \346' > /proc/$$/comm; echo ready; read x")
    shells.append(shell)
    assert shell.line() == "ready"
    assert b"\xff) S \xe6" in Path(f"/proc/{shell.pid}/stat").read_bytes()
    assert processes.parent_of(shell.pid) == os.getpid()
    assert shell.pid in processes.descendants(os.getpid())


def test_descendants_are_killed_down_to_the_last(shells: list[Shell]) -> None:
    shell = Shell("(sleep 600 & echo $!; wait) & echo $!; wait; read x")
    shells.append(shell)
    below = {int(shell.line()), int(shell.line())}
    assert below <= processes.descendants(shell.pid)
    processes.kill_descendants(shell.pid)
    assert processes.descendants(shell.pid) == set()
    assert shell.popen.poll() is None


def test_a_spared_process_stays_with_all_below_it(shells: list[Shell]) -> None:
    shell = Shell("(sleep 600 & echo $!; wait) & echo $!; sleep 600 & echo $!; wait; wait; read x")
    shells.append(shell)
    lines = [int(shell.line()) for _ in range(3)]
    spared = next(pid for pid in lines if processes.descendants(pid))
    kept = {spared} | processes.descendants(spared)
    processes.kill_descendants(shell.pid, spare=spared)
    assert processes.descendants(shell.pid) == kept
    assert len(kept) == 2


def test_what_can_not_be_killed_ends_the_wait(
    shells: list[Shell], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shell = Shell("sleep 600 & echo $!; wait; read x")
    shells.append(shell)
    child = shell.line()
    with monkeypatch.context() as patched:
        patched.setattr(processes.os, "kill", lambda pid, number: None)
        processes.kill_descendants(shell.pid, deadline_s=0)
    assert f"processes [{child}] did not end after SIGKILL" in caplog.text


@pytest.mark.parametrize(("owner", "is_killed"), [("alive", False), ("recycled", True), ("gone", True), ("nonsense", False)])
def test_orphans_are_those_whose_supervisor_is_gone(shells: list[Shell], owner: str, is_killed: bool) -> None:
    me, started = os.getpid(), processes.start_time(os.getpid())
    gone = subprocess.Popen(["true"])
    gone.wait(WAIT_S)
    value = {"alive": f"{me}:{started}", "recycled": f"{me}:{started + 1}", "gone": f"{gone.pid}:5", "nonsense": "-1:x"}[owner]
    shell = Shell("echo ready; read x", environment={MARK_VARIABLE: "run:0:worker:0", SUPERVISOR_VARIABLE: value})
    shells.append(shell)
    assert shell.line() == "ready"
    assert processes.kill_orphans() >= is_killed
    if is_killed:
        assert shell.popen.wait(WAIT_S) == -9
    else:
        assert shell.popen.poll() is None


def test_nodes_in_another_pid_namespace_are_left_alone(shells: list[Shell], monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell("echo ready; read x", environment={MARK_VARIABLE: "run:0:worker:0", SUPERVISOR_VARIABLE: "1:1"})
    shells.append(shell)
    assert shell.line() == "ready"
    there = processes.pid_namespace(shell.pid)
    monkeypatch.setattr(processes, "pid_namespace", lambda pid: "pid:[1]" if pid == shell.pid else there)
    processes.kill_orphans()
    assert shell.popen.poll() is None


def test_the_nearest_java_is_found_also_when_its_file_was_replaced(shells: list[Shell], tmp_path: Path) -> None:
    java = tmp_path / "java"
    shutil.copy("/bin/sh", java)
    shell = Shell("/bin/sh -c 'echo $$; exec sleep 600' & wait", program=str(java))
    shells.append(shell)
    child = int(shell.line())
    assert processes.java_ancestor(child) == shell.pid
    java.unlink()
    assert processes.java_ancestor(child) == shell.pid
    assert processes.java_ancestor(shell.pid) == 0


def test_pidfds_need_a_kernel_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.has_pidfd()
    monkeypatch.setattr(processes.os, "pidfd_open", lambda pid: (_ for _ in ()).throw(OSError(38, "Function not implemented")))
    assert not processes.has_pidfd()
    monkeypatch.delattr(processes.os, "pidfd_open")
    assert not processes.has_pidfd()


def test_a_process_whose_parent_is_gone_already_does_not_start() -> None:
    libc = ctypes.CDLL(None)
    try:
        with pytest.raises(ProcessLookupError, match="ended before its node started"):
            processes.die_with_parent(os.getpid())
    finally:
        libc.prctl(1, 0, 0, 0, 0)


def test_a_child_dies_with_its_parent(shells: list[Shell], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nfrom tfos_core.processes import die_with_parent\n"
        "die_with_parent(os.getppid())\nprint(os.getpid(), flush=True)\nsys.stdin.read()\n"
    )
    shell = Shell(f"{sys.executable} {program} <&0 & wait")
    shells.append(shell)
    child = int(shell.line())
    started = processes.start_time(child)
    shell.popen.kill()
    poll_until(lambda: not processes.is_same_process(child, started), WAIT_S)
