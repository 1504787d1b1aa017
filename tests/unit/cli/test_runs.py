"""Run records: making, finding, listing, and status documents that are never seen half."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfos_cli.runs import RunStore
from tfos_core.errors import ConfigError
from tfos_core.shim.record import NodeLogs, RecordWriter, node_log_name
from tfos_core.shim.redaction import MASK, Redactor
from tfos_core.shim.status import ProcessIdentity, RunState, RunStatus, read_status, write_status


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.of_environment({"TFOS_HOME": str(tmp_path / "home")})


def test_a_run_id_has_name_date_and_time_and_its_folder_is_private(store: RunStore) -> None:
    run = store.create("digits", master="yarn")
    assert re.fullmatch(r"digits-\d{8}-\d{6}-[0-9a-f]{4}", run.id)
    assert run.folder.stat().st_mode & 0o777 == 0o700
    assert (run.folder / "status.json").stat().st_mode & 0o777 == 0o600
    assert run.status().state is RunState.SUBMITTING
    assert run.status().master == "yarn"


def test_the_default_store_is_below_the_home_folder() -> None:
    assert RunStore.of_environment({}).folder == Path.home() / ".tfos" / "runs"


def test_runs_of_the_same_second_are_different_and_listed_by_time(store: RunStore) -> None:
    later = store.create("a", master="", now=2_000_000_000.0)
    earlier = [store.create("b", master="", now=1_900_000_000.0) for _ in range(3)]
    assert len({run.id for run in earlier}) == 3
    assert [run.id for run in store.all()] == [*sorted(run.id for run in earlier), later.id]


def test_a_unique_prefix_finds_a_run_and_an_ambiguous_one_names_the_candidates(store: RunStore) -> None:
    run = store.create("digits", master="")
    other = store.create("digit", master="")
    assert store.find("digits-").id == run.id
    assert store.find(run.id).id == run.id
    with pytest.raises(ConfigError, match="begins the ids of 2 runs") as caught:
        store.find("digit")
    assert other.id in caught.value.message


def test_an_unknown_run_gives_close_ids(store: RunStore) -> None:
    run = store.create("digits", master="")
    with pytest.raises(ConfigError, match="there is no run") as caught:
        store.find(run.id.replace("digits", "digist"))
    assert caught.value.hint == f"Did you mean {run.id}?"
    with pytest.raises(ConfigError, match="there is no run ''"):
        store.find("")


def test_a_store_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"a run can not be recorded in .*/file/runs") as caught:
        RunStore(folder=tmp_path / "file" / "runs").create("digits", master="")
    assert "TFOS_HOME" in str(caught.value.hint)


def test_readers_never_see_half_a_status(tmp_path: Path) -> None:
    status = RunStatus(run_id="r", name="n", state=RunState.RUNNING, started=1.0, error="x" * 50_000)
    write_status(tmp_path, status)
    over = threading.Event()
    failures: list[Exception] = []

    def read() -> None:
        while not over.is_set():
            try:
                assert len(read_status(tmp_path).error) == 50_000
            except Exception as exc:  # noqa: BLE001 - handed to the test
                failures.append(exc)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(100):
        write_status(tmp_path, status)
    over.set()
    for reader in readers:
        reader.join(10)
    assert failures == []
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_status_survives_a_round_trip_and_unknown_fields(tmp_path: Path) -> None:
    status = RunStatus(
        run_id="r",
        name="n",
        state=RunState.FINISHED,
        started=1.0,
        status="failed",
        exit_code=7,
        follower=ProcessIdentity(pid=1, start_time=2),
        exports=("/models/a",),
        rows_per_node={"worker:0": 3},
    )
    assert RunStatus.from_dict(json.loads(json.dumps(status.to_dict())) | {"news": 1}) == status
    with pytest.raises(ValueError, match="incomplete"):
        RunStatus.from_dict({"run_id": "r", "state": "running"})


def test_a_damaged_record_is_an_error_that_names_the_run(store: RunStore) -> None:
    run = store.create("digits", master="")
    (run.folder / "status.json").write_text("{")
    with pytest.raises(ConfigError, match=run.id):
        run.status()


def test_a_run_is_abandoned_when_its_processes_are_gone_and_not_before(store: RunStore) -> None:
    run = store.create("digits", master="")
    assert not run.is_abandoned(run.status())
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.of(child.pid)
    child.wait(30)
    with RecordWriter(run.folder, Redactor(())) as record:
        record.update(follower=identity)
    assert run.is_abandoned(run.status())
    assert not ProcessIdentity(pid=os.getpid(), start_time=1).is_alive


def test_a_finished_record_is_not_changed_any_more(store: RunStore) -> None:
    run = store.create("digits", master="")
    with RecordWriter(run.folder, Redactor(())) as record:
        record.update(state=RunState.FINISHED, exit_code=1)
        record.update(exit_code=7)
    assert run.status().exit_code == 1


def test_a_name_that_is_no_node_never_becomes_a_file() -> None:
    assert node_log_name("worker:0") == "worker-0.log"
    for name in ("../etc:0", "worker", "worker:0/x", "worker:-1", ""):
        with pytest.raises(ValueError, match="not the name of a node"):
            node_log_name(name)


def test_the_log_of_a_node_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    logs = NodeLogs(tmp_path / "nodes", limit_bytes=100)
    for number in range(30):
        logs.write("worker:0", [f"line {number:04d}"])
    logs.close()
    files = sorted((tmp_path / "nodes").iterdir())
    assert [path.name for path in files] == ["worker-0.log", "worker-0.log.1"]
    assert sum(path.stat().st_size for path in files) <= 200
    assert files[0].read_text().endswith("line 0029\n")


def test_secrets_are_masked_in_every_string_and_short_values_are_left() -> None:
    redactor = Redactor(["s3cret-value", "ab", "first line of a key\nsecond line of a key\n"])
    assert redactor.text("x s3cret-value y ab") == f"x {MASK} y ab"
    assert redactor.text("log: second line of a key") == f"log: {MASK}"
    value = {"s3cret-value": ["s3cret-value", 1, None], "n": {"m": ("s3cret-value",)}}
    assert redactor.value(value) == {MASK: [MASK, 1, None], "n": {"m": (MASK,)}}
