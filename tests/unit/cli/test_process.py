"""Running a child, taking its output, finding and killing what belongs to it; asking whether a Master answers."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from tfos_cli.submit.errors import SubmitError
from tfos_cli.submit.process import OutputLog, SparkSubmit, leftovers, meaningful
from tfos_cli.submit.reachability import master_addresses, require_reachable
from tfos_core.shim.redaction import Redactor


class Child:
    def __init__(self, code: str) -> None:
        self.lines: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.exits: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.process = SparkSubmit(
            [sys.executable, "-c", code],
            environment=dict(os.environ),
            cwd=None,
            on_line=lambda stream, text: self.lines.put((stream, text)),
            on_exit=self.exits.put,
        )

    def next_line(self) -> tuple[str, str]:
        return self.lines.get(timeout=20)


def test_both_streams_and_the_exit_code_arrive() -> None:
    child = Child(
        "import sys; print('out \u00e9', flush=True); print('err', file=sys.stderr); sys.stdout.buffer.write(b'\\xff'); sys.exit(3)"
    )
    assert child.exits.get(timeout=20) == 3
    assert {child.next_line() for _ in range(3)} == {("stdout", "out \u00e9"), ("stderr", "err"), ("stdout", "\ufffd")}
    child.process.close()


def test_a_child_has_a_session_of_its_own_and_ctrl_c_does_not_reach_it() -> None:
    child = Child("import os, time; print(os.getsid(0), flush=True); time.sleep(60)")
    assert child.next_line() == ("stdout", str(child.process.pid))
    assert os.getpgid(child.process.pid) != os.getpgid(0)
    assert child.process.kill_all("run-x") == 1
    assert child.exits.get(timeout=20) == -signal.SIGKILL
    child.process.close()


def test_a_daemon_that_holds_the_pipe_does_not_hide_the_end() -> None:
    child = Child("import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)")
    assert child.exits.get(timeout=20) == 0
    daemon = int(child.next_line()[1])
    assert [process.pid for process in leftovers(child.process.pid, "run-x")] == [daemon]
    assert not child.process.wait_gone("run-x", timeout=0.1)
    child.process.kill_all("run-x")
    assert child.process.wait_gone("run-x", timeout=10)
    assert not psutil.pid_exists(daemon) or psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE
    child.process.close()


def test_processes_of_another_run_are_not_touched() -> None:
    child = Child(
        "import os, subprocess, time\n"
        "p = subprocess.Popen(['sleep', '60'], env=dict(os.environ, TFOS_NODE='run-xy:g:worker:0'), start_new_session=True)\n"
        "print(p.pid, flush=True)\n"
    )
    other = int(child.next_line()[1])
    assert child.exits.get(timeout=20) == 0
    assert leftovers(child.process.pid, "run-x") == []
    assert [process.pid for process in leftovers(-1, "run-xy")] == [other]
    os.kill(other, signal.SIGKILL)
    child.process.close()


def test_a_missing_program_is_a_submission_error() -> None:
    with pytest.raises(SubmitError, match="/nowhere/spark-submit can not be started: No such file"):
        SparkSubmit(["/nowhere/spark-submit"], environment={}, cwd=None, on_line=lambda s, t: None, on_exit=lambda c: None)


def test_the_log_is_private_masked_and_remembers_its_end(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "driver.log", Redactor(["s3cret-value"]))
    for number in range(1000):
        log.write(f"line {number}")
    assert log.write("has s3cret-value") == "has [secret]"
    log.close()
    log.close()
    assert log.last_lines()[-2:] == ("line 999", "has [secret]")
    assert len(log.last_lines()) < 1000
    assert "s3cret" not in (tmp_path / "driver.log").read_text()
    assert (tmp_path / "driver.log").stat().st_mode & 0o777 == 0o600


def test_meaningful_lines_leave_out_frames_and_information() -> None:
    lines = ["26/11/29 INFO a", "ERROR b", "\tat org.apache", "", "Caused by: c"]
    assert meaningful(lines) == ("ERROR b", "Caused by: c")
    assert meaningful([f"l{n}" for n in range(99)], most=2) == ("l97", "l98")


def test_every_master_of_a_list_is_an_address() -> None:
    assert master_addresses("spark://a:1,b:2") == (("a", 1), ("b", 2))
    assert master_addresses("spark://a") == (("a", 7077),)
    assert master_addresses("spark://[::1]:5") == (("::1", 5),)
    assert master_addresses("yarn") == master_addresses("local-cluster[1,1,1024]") == master_addresses("k8s://https://a:1") == ()


def test_one_master_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}", timeout=20)


def test_masters_that_do_not_answer_are_all_named() -> None:
    with pytest.raises(SubmitError, match=r"127\.0\.0\.1:1: Connection refused; 127\.0\.0\.1:2: Connection refused"):
        require_reachable("spark://127.0.0.1:1,127.0.0.1:2", timeout=20)


def test_a_master_behind_a_wall_is_given_up_in_time() -> None:
    """A full backlog takes no more connections and refuses none, as a firewall that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            waiting.append(filler)
        with pytest.raises(SubmitError, match=f"{address[0]}:{address[1]}"):
            require_reachable(f"spark://{address[0]}:{address[1]}", timeout=0.3)
        for filler in waiting:
            filler.close()
