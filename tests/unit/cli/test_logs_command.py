"""`tfos runs`, `status`, `logs` and `cancel`, over records written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tfos_cli.log_reader import LogFile
from tfos_cli.runs import Run, RunStore
from tfos_core import events
from tfos_core.shim.record import NodeLogs, RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import ProcessIdentity, RunState


@pytest.fixture
def store(tfos_home: Path) -> RunStore:
    return RunStore(folder=tfos_home / "runs")


def finished_run(store: RunStore, name: str = "digits", **fields: Any) -> Run:
    run = store.create(name, master="yarn", now=2_000_000_000.0)
    with RecordWriter(run.folder, Redactor(())) as record:
        record.event(events.ReservationServerStarted(host="h", port=1, expected=("chief:0", "worker:0"), timeout_s=1))
        record.event(events.NodeRegistered(node="chief:0", executor_id=0, host="a", port=1, pid=1, registered=1, expected=2))
        record.output("chief:0", ["one", "two"])
        record.output("worker:0", ["three"])
        changes = {"state": RunState.FINISHED, "status": "success", "exit_code": 0, "ended": 2_000_000_065.0}
        record.update(**(changes | fields))
    return run


def test_runs_are_a_table_or_a_json_list(store: RunStore, run_line: Any) -> None:
    good = finished_run(store)
    bad = finished_run(store, "zoo", status="failed", exit_code=7)
    lines = run_line("tfos runs").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATE", "CODE", "STARTED", "TOOK", "MASTER"]
    assert lines[1].startswith(good.id)
    assert "success" in lines[1]
    assert "1 min 5 s" in lines[1]
    assert "failed  7" in " ".join(lines[2].split(" ")).replace("   ", "  ")
    listed = json.loads(run_line("tfos runs --json").stdout)
    assert [entry["run_id"] for entry in listed] == [good.id, bad.id]
    assert listed[1]["exit_code"] == 7


def test_without_runs_there_is_nothing_on_stdout(run_line: Any) -> None:
    assert run_line("tfos runs").stdout == ""
    assert json.loads(run_line("tfos runs --json").stdout) == []


def test_status_shows_nodes_and_takes_a_prefix(store: RunStore, run_line: Any) -> None:
    run = finished_run(store, rows_fed=12, exports=("/models/digits",))
    shown = run_line("tfos status digits").stdout
    for text in (run.id, "success", "yarn", "chief:0      registered, a", "worker:0     missing", "/models/digits", "12"):
        assert text in shown
    record = json.loads(run_line(["tfos", "status", run.id, "--json"]).stdout)
    assert (record["v"], record["state"], record["exit_code"], record["abandoned"]) == (1, "finished", 0, False)


@pytest.mark.parametrize("verb", ["status", "logs", "cancel"])
def test_an_unknown_run_is_a_usage_error_with_a_suggestion(store: RunStore, run_line: Any, verb: str) -> None:
    run = finished_run(store)
    outcome = run_line(["tfos", verb, run.id.replace("digits", "dgits")], 2)
    assert f"Did you mean {run.id}?" in outcome.stderr


def test_a_run_whose_processes_are_gone_is_abandoned(store: RunStore, run_line: Any) -> None:
    run = store.create("digits", master="yarn")
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.of(child.pid)
    child.wait(30)
    with RecordWriter(run.folder, Redactor(())) as record:
        record.update(follower=identity, state=RunState.RUNNING)
    assert "abandoned" in run_line("tfos runs").stdout
    assert "abandoned" in run_line("tfos status digits").stdout
    assert "are gone" in run_line("tfos cancel digits", 7).stderr


def test_logs_of_all_nodes_are_prefixed_and_of_one_node_plain(store: RunStore, run_line: Any) -> None:
    run = finished_run(store)
    run.driver_log.write_text("from the driver\nwithout an end")
    assert run_line("tfos logs digits").stdout == "chief:0 | one\nchief:0 | two\nworker:0 | three\n"
    assert run_line("tfos logs digits --node worker:0").stdout == "three\n"
    assert run_line("tfos logs digits --node driver").stdout == "from the driver\nwithout an end\n"
    outcome = run_line("tfos logs digits --node worker:9")
    assert (outcome.stdout, "worker:9 has printed nothing" in outcome.stderr) == ("", True)


def test_a_node_that_can_not_be_one_is_a_usage_error(store: RunStore, run_line: Any) -> None:
    finished_run(store)
    assert "'../x' is not the name of a node" in run_line("tfos logs digits --node ../x", 2).stderr


def test_follow_shows_new_lines_and_new_nodes_and_ends_with_the_run(store: RunStore, tfos_process: Any) -> None:
    run = store.create("digits", master="yarn")
    with RecordWriter(run.folder, Redactor(())) as record:
        record.output("worker:0", ["first"])
        process = tfos_process(["tfos", "logs", run.id, "--follow"])
        _await_line(process, "worker:0 | first")
        record.output("worker:0", ["second"])
        record.output("ps:0", ["from ps"])
        _await_line(process, "worker:0 | second")
        _await_line(process, "ps:0 | from ps")
        record.output("worker:0", ["last"])
        record.update(state=RunState.FINISHED, status="success", exit_code=0)
    assert process.wait(20, exit_code=0).stdout.splitlines()[-1] == "worker:0 | last"


def test_follow_ends_when_nobody_is_left_to_end_the_run(store: RunStore, run_line: Any) -> None:
    run = store.create("digits", master="yarn")
    with RecordWriter(run.folder, Redactor(())) as record:
        record.output("worker:0", ["first"])
        record.update(follower=ProcessIdentity(pid=os.getpid(), start_time=1))
    assert run_line("tfos logs digits --follow").stdout == "worker:0 | first\n"


def test_a_rotated_log_is_read_without_a_gap(tmp_path: Path) -> None:
    logs = NodeLogs(tmp_path, limit_bytes=120)
    file = LogFile("worker:0", tmp_path / "worker-0.log")
    seen: list[str] = []
    for number in range(40):
        logs.write("worker:0", [f"line {number:04d}"])
        seen += list(file.lines())
    logs.close()
    file.close()
    assert seen == [f"line {number:04d}" for number in range(40)]


def test_cancel_of_a_finished_run_says_so(store: RunStore, run_line: Any) -> None:
    run = finished_run(store)
    assert f"run {run.id} had already ended: success, exit code 0" in run_line("tfos cancel digits").stdout


def test_cancel_stops_the_follower_and_waits_for_the_end(store: RunStore, run_line: Any) -> None:
    run = store.create("digits", master="yarn")
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tfos_core.shim.record import RecordWriter\n"
        "from tfos_core.shim.redaction import Redactor\n"
        "from tfos_core.shim.status import ProcessIdentity, RunState\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "with RecordWriter(Path(sys.argv[1]), Redactor(())) as record:\n"
        "    record.update(follower=ProcessIdentity.of(os.getpid()))\n"
        "    print('ready', flush=True)\n"
        "    signal.sigtimedwait([signal.SIGTERM], 30)\n"
        "    record.update(state=RunState.FINISHED, status='interrupted', exit_code=130)\n"
    )
    follower = subprocess.Popen([sys.executable, "-c", code, str(run.folder)], stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"ready\n"
    reaper = threading.Thread(target=follower.wait, args=(40,))
    reaper.start()
    assert f"run {run.id} has ended: interrupted, exit code 130" in run_line(["tfos", "cancel", run.id]).stdout
    reaper.join(10)
    follower.stdout.close()


def test_cancel_does_not_touch_a_process_that_only_has_the_same_number(store: RunStore, run_line: Any) -> None:
    run = store.create("digits", master="yarn")
    innocent = subprocess.Popen(["sleep", "60"])
    with RecordWriter(run.folder, Redactor(())) as record:
        record.update(follower=ProcessIdentity(pid=innocent.pid, start_time=1))
    run_line("tfos cancel digits", 7)
    assert innocent.poll() is None
    innocent.kill()
    innocent.wait(10)


def test_cancel_gives_up_after_its_timeout(store: RunStore, run_line: Any) -> None:
    run = store.create("digits", master="yarn")
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    deaf = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == b"ready\n"
    with RecordWriter(run.folder, Redactor(())) as record:
        record.update(follower=ProcessIdentity.of(deaf.pid))
    assert "has not ended 0.2 s after" in run_line("tfos cancel digits --timeout 0.2", 7).stderr
    deaf.kill()
    deaf.wait(10)
    deaf.stdout.close()


def _await_line(process: Any, text: str) -> None:
    process._wait(process._stdout, lambda lines: next((line for line in lines if text in line), None), 20.0, text)
