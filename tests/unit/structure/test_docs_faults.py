"""docs/debugging.md says what the engine says: messages, deadlines, examples, and the faults that the slow tier injects."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testbed.fault_table import Fault

from tfos_core.errors import FeedTimeoutError
from tfos_core.node_table import NodeTable
from tfos_core.outcome import judge
from tfos_core.reservation.tcp import HEARTBEAT_S
from tfos_core.settings import EXIT_LIMIT_S, EXIT_WARN_S
from tfos_core.stacks import ASK_SIGNAL, parse_stacks
from tfos_core.stuck import StuckNodes
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
SUITE = (ROOT / "tests" / "slow" / "test_faults.py").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of a table, without its head."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return lines[1:]


FAULTS = {name: row for row in rows(section("What is noticed, and how fast")) for name in row[0].split(", ")}


def test_the_page_has_every_fault_that_is_injected_and_no_other() -> None:
    assert set(FAULTS) == {str(fault) for fault in Fault}
    for fault in Fault:
        assert f"Fault.{fault.name}" in SUITE


@pytest.mark.parametrize(
    ("fault", "status"), [("TensorFlow process killed by a signal", -15), ("out of memory (SIGKILL)", -9), ("exit code 137", 137)]
)
def test_the_ends_of_processes_are_told_as_the_page_says(fault: str, status: int) -> None:
    assert FAULTS[fault][2] == f"`{judge('worker:1', status, None, stopped=False).error}`"


def test_a_lost_supervisor_is_told_as_the_page_says() -> None:
    table = NodeTable(ClusterPlan.build(2), InputMode.SPARK)
    table.registered("worker:1", "10.0.0.12")
    failure = table.disconnected("worker:1")
    assert failure is not None
    assert FAULTS["supervisor killed"][2] == f"`{failure.outcome.error}`"


def test_deadlines_are_those_of_the_engine() -> None:
    assert f"nothing was heard for {HEARTBEAT_S:g} s" in FAULTS["network between driver and a node cut"][2]
    assert f"After {EXIT_WARN_S:g} s that is a warning" in PAGE
    assert f"after {EXIT_LIMIT_S:g} s the node is ended" in PAGE.replace("\n", " ").replace("  ", " ")
    assert f"(SIGRTMAX-{signal.SIGRTMAX - ASK_SIGNAL})" in PAGE


def test_the_example_of_a_stuck_node_is_what_the_engine_says() -> None:
    text = section("Where a node is stuck")
    (shown,) = re.findall(r"```\n(worker:1 .*)\n```", text)
    table = NodeTable(ClusterPlan.build(2), InputMode.SPARK)
    table.registered("worker:1", "10.0.0.12")
    stuck = StuckNodes(table, lambda event: None)

    def answer(node: str, message: object) -> None:
        stuck.answered(node, {"place": "train_step (digits.py:41)", "stack": "", "last_lines": []})

    stuck.send = answer
    error = FeedTimeoutError("node worker:1 consumed no row for 300 seconds (partition 7)", None, "worker:1", 7)
    assert str(stuck.explain(error)) == shown


def test_the_example_of_stacks_can_be_read() -> None:
    (dump,) = re.findall(r"```\n(\[tfos\] the stacks.*?)```", section("Where a node is stuck"), re.DOTALL)
    assert parse_stacks(dump, "0x7f5d3c9f6740").place == "all_reduce (digits.py:63)"


def test_the_spec_of_the_page_is_valid(run_line: RunLine, tmp_path: Path) -> None:
    (spec,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "apps").mkdir()
    shutil.copy(ROOT / "jobspecs" / "apps" / "digits.py", tmp_path / "apps")
    (tmp_path / "digits.csv").write_text("1,2\n")
    (tmp_path / "job.yaml").write_text(spec)
    run_line("tfos validate job.yaml")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 6, 7, 70, 130])
def test_the_page_starts_from_the_exit_codes(code: int) -> None:
    table = {row[0]: row for row in rows(PAGE.partition("## ")[0])}
    (anchor,) = re.findall(r"\(#exit-code-(\d+)-", table[str(code)][2])
    assert int(anchor) == code
