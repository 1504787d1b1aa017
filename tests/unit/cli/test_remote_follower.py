"""Cluster deploy mode without a cluster: the real follower, link, uplink and driver shim, with a folder between them.

More of it, where each test takes seconds: tests/slow/test_cluster_mode.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.cluster_program import container_of
from fakes.cluster_runs import MEMORY, SECRET, Case

from tfos_cli.remote.place import private_path


def test_secrets_reach_the_driver_and_are_in_no_record_nor_on_a_screen(tmp_path: Path) -> None:
    case = Case(tmp_path, "good")
    case.follow()
    assert not private_path(case.run.folder).exists()
    written = [path for folder in (case.run.folder, case.record) for path in folder.rglob("*") if path.is_file()]
    assert case.record / "000000000001.jsonl" in written
    assert all(SECRET not in path.read_text() for path in written)
    assert SECRET not in case.stdout.getvalue() + case.stderr.getvalue()
    assert SECRET in (container_of(case.run.folder) / "tfos-private.json").read_text()


def test_a_driver_that_was_killed_for_memory_is_named_as_such(tmp_path: Path) -> None:
    case = Case(tmp_path, "kill-self")
    case.manager.outcome = "FAILED"
    case.manager.diagnostics = f"Application failed 1 times due to AM Container exited with  exitCode: -104\nDiagnostics: {MEMORY}"
    status = case.follow()
    assert status.exit_code == 7
    assert "killed for memory" in status.error
    assert "1.1 GB of 1 GB" in status.error
    assert "spark.driver.memoryOverhead" in status.hint
    assert case.events()[-1] == "result"


@pytest.mark.parametrize(("mode", "said"), [("refuse", "queue ml does not exist"), ("not-handed-over", "no such archive")])
def test_a_refused_submission_gives_5_and_the_reason(tmp_path: Path, mode: str, said: str) -> None:
    case = Case(tmp_path, mode)
    case.manager.knows = False
    status = case.follow()
    assert status.exit_code == 5
    assert said in case.stderr.getvalue()
