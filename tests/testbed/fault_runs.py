"""A job of two nodes under `tfos train` that is to be broken, and what came of it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.commandline import Outcome, TfosProcess
from testbed.fault_table import NONE_LEFT, Fault, FaultRow
from testbed.leaks import Leftovers, Snapshot, find_leftovers, take_snapshot
from testbed.processes import Process, read_process, wait_until_gone
from testbed.session import Session
from testbed.waiting import poll_until

__all__ = ("FaultRun", "take_note", "write_job")

APP = Path(__file__).with_name("fault_app.py")
SPEC = """
name: faults
entrypoint: app.py:main_fun
args: {fault: %s, folder: %s}
num_executors: 2
%s
spark: {executor_memory: 512m, driver_memory: 512m}
"""
MODES = {
    "spark": 'input_mode: spark\nmaster_node: null\ndata: {source: "app.py:rows"}',
    "tensorflow": "input_mode: tensorflow\nmaster_node: null",
    "parallel": "mode: parallel",
}
#: Until both nodes are in a step, on a loaded machine.
START_S = 100.0
#: Until the end of a broken job, so that the table can say how long it took instead of an error of the test.
END_S = 60.0
LEFT_S = 10.0


def write_job(folder: Path, fault: str, mode: str) -> str:
    """The program and the spec in `folder`; returns the name of the spec."""
    (folder / "notes").mkdir()
    shutil.copy(APP, folder / "app.py")
    (folder / "job.yaml").write_text(SPEC % (fault, folder / "notes", MODES[mode]))
    return "job.yaml"


@dataclass(slots=True)
class FaultRun:
    """A started job. `before` was taken when nothing of it was there; what is below `sparks` is Spark's own affair."""

    process: TfosProcess
    folder: Path
    fault: Fault
    mode: str
    before: Snapshot
    sparks: tuple[Path, ...]
    broken_at: float = 0.0

    def await_steps(self) -> None:
        """Both nodes are in a step.

        Raises:
            AssertionError: the job has ended instead, or they do not come.
        """
        names = [self.folder / "notes" / f"worker-{index}" for index in range(2)]
        poll_until(
            lambda: all(name.exists() for name in names) or self.process.process.poll() is not None,
            START_S,
            what=lambda: f"both nodes are in a step:\n{self.process.stdout}\n{self.process.stderr}",
        )
        assert self.process.process.poll() is None, f"{self.process.stdout}\n{self.process.stderr}"

    def await_fault(self) -> None:
        """The node itself says when it goes wrong."""
        noted = self.folder / "notes" / "fault-at"
        poll_until(lambda: noted.exists() or self.process.process.poll() is not None, START_S, what="the fault")
        self.broken_at = float(noted.read_text())

    def broken_now(self) -> None:
        """The fault happens now."""
        self.broken_at = time.time()

    def registration(self, index: int) -> dict[str, Any]:
        """The event of a worker's registration."""
        return self.process.wait_for_event("node_registered", START_S, where=lambda event: event["node"] == f"worker:{index}")

    def supervisor(self, index: int = 1) -> Process:
        """The supervisor of a worker."""
        found = read_process(self.registration(index)["pid"])
        assert found is not None
        return found

    def noted(self, index: int) -> tuple[int, Path]:
        """Process id and folder of a worker's program."""
        pid, _, folder = (self.folder / "notes" / f"worker-{index}").read_text().partition(" ")
        return int(pid), Path(folder)

    def all_processes(self) -> tuple[Process, ...]:
        """What runs on the executors: supervisors and programs."""
        pids = [self.noted(index)[0] for index in range(2)] + [self.registration(index)["pid"] for index in range(2)]
        return tuple(process for pid in pids if (process := read_process(pid)) is not None)

    def go_on(self) -> None:
        """Let the nodes train to the end."""
        (self.folder / "notes" / "go-on").touch()

    def finish(
        self,
        *,
        notice: str = "node_failed",
        also_gone: Sequence[Process] = (),
        before_looking: Callable[[], None] | None = None,
        left_s: float = LEFT_S,
    ) -> FaultRow:
        """Wait for the end, and look at everything.

        Args:
            notice: the event that tells of the fault; the result does where there is none.
            also_gone: processes that have to notice by themselves; the fault is noticed when the last one is gone.
            before_looking: called before leftovers are looked for.
            left_s: Spark's own processes have so many seconds to end.
        """
        with ThreadPoolExecutor(1) as pool:
            gone = pool.submit(_gone_at, also_gone)
            outcome = self.process.wait(END_S)
            ended = time.time()
            noticed = max(self._noticed(outcome, notice), gone.result())
        if before_looking is not None:
            before_looking()
        return FaultRow(
            fault=self.fault,
            mode=self.mode,
            noticed_s=round(noticed - self.broken_at, 2),
            ended_s=round(ended - self.broken_at, 2),
            exit_code=outcome.exit_code,
            message=self._message(outcome, notice),
            first_failure=_first_failure(self.result(outcome)),
            leftovers=self._leftovers(left_s),
        )

    def result(self, outcome: Outcome) -> dict[str, Any]:
        """The last event."""
        return outcome.events[-1]

    def _noticed(self, outcome: Outcome, notice: str) -> float:
        """Clocks of one machine: events have the time at which they were made."""
        times = [event["ts"] for event in outcome.events if event["event"] in (notice, "result") and event["ts"] >= self.broken_at]
        return float(times[0]) if times else time.time()

    def _message(self, outcome: Outcome, notice: str) -> str:
        if notice == "warning":
            return "; ".join(event["message"] for event in outcome.events if event["event"] == "warning")
        return str(self.result(outcome)["error"])

    def _find_leftovers(self) -> Leftovers:
        found = find_leftovers(self.before)
        return replace(found, files=tuple(path for path in found.files if not set(self.sparks) & set(path.parents)))

    def _leftovers(self, left_s: float) -> str:
        until = time.monotonic() + left_s
        while left := self._find_leftovers():
            if time.monotonic() > until:
                return str(left)
            time.sleep(0.05)
        return NONE_LEFT


def take_note(session: Session) -> Snapshot:
    """What is there before a job: of processes, sockets, and files anywhere below TMPDIR."""
    # Spark makes it once, and leaves it.
    Path(os.environ["SPARK_LOCAL_DIRS"]).mkdir(exist_ok=True)
    return take_snapshot(session.mark, [session.temporary])


def _gone_at(processes: Sequence[Process]) -> float:
    """When the last of them had ended; 0 when there are none."""
    left = wait_until_gone(processes, END_S)
    assert not left, f"still there after {END_S:g} s: {left}"
    return time.time() if processes else 0.0


def _first_failure(result: dict[str, Any]) -> str:
    failure = result.get("first_failure") or {}
    return f"{failure['node']} on {failure['host']}" if failure else ""
