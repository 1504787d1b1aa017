"""`tfos stop-streaming`: over records written by hand and a real server in this process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfos_cli.runs import Run, RunStore
from tfos_core import events
from tfos_core.reservation import Server
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.streaming.streams import NOT_A_STREAM, STREAM_ENDED

if TYPE_CHECKING:
    from tests.conftest import RunLine


class Driver:
    """A server that answers a request to stop with one message."""

    def __init__(self, answer: dict[str, object]) -> None:
        self.asked = 0
        self._answer = answer
        self.server = Server(1, on_stop=self._on_stop, host="127.0.0.1", environ={})
        self.host, self.port = self.server.start()

    def _on_stop(self) -> None:
        self.asked += 1
        self.server.tell_stoppers(self._answer)


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver({"op": STREAM_ENDED, "batches": 3, "rows": 21})
    yield made
    made.server.stop()


@pytest.fixture
def run(tfos_home: Path, driver: Driver) -> Run:
    return streaming_run(tfos_home, driver.host, driver.port, driver.server.secret)


def streaming_run(home: Path, host: str, port: int, secret: bytes) -> Run:
    run = RunStore(folder=home / "runs").create("clicks", master="yarn")
    run.plan_path.write_text(json.dumps({"stream": {"source": "files"}}))
    (run.folder / "secret").write_text(secret.hex() + "\n")
    with RecordWriter(run.folder, Redactor(())) as record:
        record.event(events.ReservationServerStarted(host=host, port=port, expected=("chief:0",), timeout_s=1))
    return run


def test_nothing_is_sent_without_execute(run: Run, driver: Driver, run_line: RunLine) -> None:
    outcome = run_line(f"tfos stop-streaming {run.id}")
    assert f"would ask the driver of run {run.id} at {driver.host}:{driver.port}" in outcome.stdout
    assert "--execute" in outcome.stderr
    told = json.loads(run_line(f"tfos stop-streaming {run.id} --json").stdout)
    assert told == {"target": f"run {run.id}", "host": driver.host, "port": driver.port, "executed": False}
    assert driver.asked == 0


def test_a_run_is_stopped_and_what_it_was_fed_is_reported(run: Run, driver: Driver, run_line: RunLine) -> None:
    outcome = run_line(f"tfos stop-streaming {run.id} --execute")
    assert outcome.stdout == f"the stream of run {run.id} has ended: 3 batches with 21 rows were fed\n"
    told = json.loads(run_line(f"tfos stop-streaming {run.id} --execute --json").stdout)
    assert told == {"target": f"run {run.id}", "executed": True, "batches": 3, "rows": 21}
    assert driver.asked == 2
    assert driver.server.secret.hex() not in outcome.stdout + outcome.stderr


def test_a_driver_is_stopped_by_its_address_and_a_file_with_the_secret(driver: Driver, run_line: RunLine, tmp_path: Path) -> None:
    line = f"tfos stop-streaming {driver.host} {driver.port} --execute"
    assert "--secret-file" in run_line(line, 2).stderr
    assert "can not be read" in run_line(f"{line} --secret-file nowhere", 2).stderr
    for content in (driver.server.secret.hex().encode(), driver.server.secret):
        (tmp_path / "secret").write_bytes(content)
        assert "3 batches with 21 rows" in run_line(f"{line} --secret-file secret").stdout
    assert driver.asked == 2


def test_a_wrong_secret_is_refused_with_3(run: Run, driver: Driver, run_line: RunLine) -> None:
    (run.folder / "secret").write_text(os.urandom(32).hex())
    assert "refused" in run_line(f"tfos stop-streaming {run.id} --execute", 3).stderr
    assert driver.asked == 0


def test_a_driver_that_is_gone_is_unreachable_with_5(tfos_home: Path, run_line: RunLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfos_cli.stream_stop._CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    run = streaming_run(tfos_home, "127.0.0.1", port, bytes(32))
    assert "does not answer" in run_line(f"tfos stop-streaming {run.id} --execute", 5).stderr
    (run.folder / "secret").unlink()
    assert "not being fed" in run_line(f"tfos stop-streaming {run.id} --execute", 5).stderr


def test_a_stream_that_does_not_end_in_time_is_said_to_go_on(tfos_home: Path, run_line: RunLine) -> None:
    server = Server(1, host="127.0.0.1", environ={})
    host, port = server.start()
    try:
        run = streaming_run(tfos_home, host, port, server.secret)
        assert "was asked to stop" in run_line(f"tfos stop-streaming {run.id} --execute --timeout 0.2", 5).stderr
    finally:
        server.stop()


def test_a_run_that_has_ended_says_what_it_was_fed(run: Run, driver: Driver, run_line: RunLine) -> None:
    with RecordWriter(run.folder, Redactor(())) as record:
        record.event(events.StreamFinished(batches=7, rows=70, reason="the source ended"))
    assert "had already ended: 7 batches with 70 rows" in run_line(f"tfos stop-streaming {run.id} --execute").stdout
    assert driver.asked == 0


def test_other_jobs_and_unknown_runs_are_usage_errors(tfos_home: Path, run_line: RunLine, tmp_path: Path) -> None:
    assert "there is no run 'nope'" in run_line("tfos stop-streaming nope", 2).stderr
    run = RunStore(folder=tfos_home / "runs").create("digits", master="yarn")
    assert "can not be read" in run_line(f"tfos stop-streaming {run.id}", 2).stderr
    run.plan_path.write_text('{"stream": null}')
    assert f"run {run.id} is not a streaming job" in run_line(f"tfos stop-streaming {run.id}", 2).stderr
    assert "goes with HOST PORT" in run_line(f"tfos stop-streaming {run.id} --secret-file x", 2).stderr
    made = Driver({"op": NOT_A_STREAM})
    try:
        (tmp_path / "secret").write_text(made.server.secret.hex())
        outcome = run_line(f"tfos stop-streaming {made.host} {made.port} --secret-file secret --execute", 2)
        assert "is not fed a stream" in outcome.stderr
    finally:
        made.server.stop()
