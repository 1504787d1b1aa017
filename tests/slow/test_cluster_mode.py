"""Cluster deploy mode without a cluster: every way in which a run ends, and what becomes of one that nobody follows."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fakes.cluster_program import APPLICATION, container_of
from fakes.cluster_runs import KILLED, MEMORY, Case, follow_and_be_killed, send

from tfos_cli.remote.applications import ApplicationReport


@pytest.fixture
def taken_port() -> Iterator[str]:
    """A port on which nothing else can listen: there is no live connection then."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield str(holder.getsockname()[1])


@pytest.mark.parametrize("way", ["live", "record"])
def test_a_good_run_ends_with_0_and_its_record_is_here_and_there(tmp_path: Path, way: str, taken_port: str) -> None:
    case = Case(tmp_path, "good", **({} if way == "live" else {"TFOS_SERVER_PORT": taken_port}))
    status = case.follow()
    assert (status.exit_code, status.status, status.is_finished) == (0, "success", True), case.stderr.getvalue()
    assert status.application_id == "app-1", "the driver knows it best"
    assert status.record == case.remote.record
    assert case.events()[0] == "submitted"
    assert case.events().count("cluster_ready") == 1
    assert case.events()[-1] == "result"
    assert f"application {APPLICATION}" in case.stderr.getvalue()
    assert ("no live connection" in case.stderr.getvalue()) == (way == "record")
    assert "hello from the node" in (case.run.nodes_folder / "worker-0.log").read_text()
    assert "what the user prints" in (case.run.nodes_folder / "driver-0.log").read_text()
    there = json.loads((case.record / "status.json").read_text())
    assert (there["exit_code"], there["state"]) == (0, "finished")
    assert case.record.stat().st_mode & 0o777 == 0o700
    assert [t.name for t in threading.enumerate() if t.name.startswith("tfos-")] == []


def test_a_failing_node_gives_1_and_its_traceback(tmp_path: Path) -> None:
    case = Case(tmp_path, "fail")
    status = case.follow()
    assert status.exit_code == 1
    assert status.first_failure is not None
    assert status.first_failure["node"] == "worker:0"
    assert "Traceback: no" in case.stderr.getvalue()


@pytest.mark.parametrize("way", ["live", "record"])
def test_a_signal_shuts_the_cluster_down_whichever_way_it_reaches_the_driver(tmp_path: Path, way: str, taken_port: str) -> None:
    case = Case(tmp_path, "wait", **({} if way == "live" else {"TFOS_SERVER_PORT": taken_port}))
    status = case.follow(send(signal.SIGTERM, "cluster_ready"))
    assert (status.exit_code, status.status) == (130, "interrupted"), case.stderr.getvalue()
    assert "SIGTERM" in status.error
    assert case.manager.killed == []
    assert json.loads((case.record / "cancel.json").read_text())["reason"].startswith("SIGTERM")


def test_a_second_signal_kills_the_application(tmp_path: Path) -> None:
    case = Case(tmp_path, "ignore")
    numbers = iter([signal.SIGINT, signal.SIGINT])

    def tell(kind: str) -> None:
        if kind == "cluster_ready":
            for number in numbers:
                os.kill(os.getpid(), number)

    status = case.follow(tell)
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert "killed by a second signal" in status.error
    assert case.manager.killed == ["app-1"] or case.manager.killed == [APPLICATION]


def test_an_application_that_was_killed_from_outside_is_interrupted(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    status = case.follow(lambda kind: case.manager.kill(APPLICATION) if kind == "cluster_ready" else None)
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert "was killed: Application killed by user." in status.error


def test_a_signal_while_the_application_waits_for_its_driver_has_the_manager_end_it(tmp_path: Path) -> None:
    case = Case(tmp_path, "queued")
    case.manager.report = lambda _: ApplicationReport(state="ACCEPTED") if not case.manager.killed else KILLED  # type: ignore[method-assign]
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    status = case.follow()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert case.manager.killed == [APPLICATION]


def test_a_spark_submit_that_does_not_wait_is_no_end(tmp_path: Path) -> None:
    case = Case(tmp_path, "good", how="leave")
    status = case.follow()
    assert (status.exit_code, status.status) == (0, "success"), case.stderr.getvalue()


def test_a_run_whose_follower_was_killed_goes_on_and_is_brought_home_later(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    follower = follow_and_be_killed(case)
    status = case.run.status()
    assert not status.is_finished
    assert not case.run.is_abandoned(status), "its driver is on the cluster"
    assert follower.poll() is not None
    unfollowed = case.unfollowed()
    assert not unfollowed.read().is_finished
    assert unfollowed.request_end("tfos cancel")
    assert not unfollowed.request_end("tfos cancel"), "asked before"
    until = time.monotonic() + 30
    while not unfollowed.read().is_finished:
        assert time.monotonic() < until
        time.sleep(0.1)  # the record is on a file system that tells nobody
    status = case.run.status()
    assert (status.exit_code, status.status) == (130, "interrupted")
    assert case.events().count("cluster_ready") == 1
    assert case.events()[-1] == "result"
    assert "hello from the node" in (case.run.nodes_folder / "worker-0.log").read_text()


def test_a_run_whose_driver_died_unseen_is_ended_by_what_the_manager_says(tmp_path: Path) -> None:
    case = Case(tmp_path, "wait")
    follow_and_be_killed(case)
    case.manager.outcome, case.manager.diagnostics = "FAILED", MEMORY
    unfollowed = case.unfollowed()
    assert not unfollowed.ask_manager().is_finished
    psutil.Process(int((container_of(case.run.folder) / "pid").read_text())).kill()
    until = time.monotonic() + 30
    while not (status := unfollowed.ask_manager()).is_finished:
        assert time.monotonic() < until
        time.sleep(0.1)  # a killed process is there until init has seen it
    assert status.exit_code == 7
    assert "killed for memory" in status.error
