"""What came of every fault: a row each, and the table of all rows as JSON and Markdown."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

__all__ = ("NONE_LEFT", "Fault", "FaultRow", "FaultTable")

NONE_LEFT = "none"
_LONGEST_MESSAGE = 300


class Fault(StrEnum):
    """What is broken; docs/debugging.md has a row for each."""

    RAISES_BEFORE = "exception before feeding"
    RAISES_WHILE = "exception while feeding"
    RAISES_AFTER = "exception after feeding"
    CALLS_EXIT = "sys.exit(3)"
    EXIT_CODE = "exit code 137"
    SIGNAL = "TensorFlow process killed by a signal"
    MEMORY = "out of memory (SIGKILL)"
    HANG = "hang in map_fun"
    SUPERVISOR = "supervisor killed"
    EXECUTOR = "executor JVM killed"
    WORKER_DAEMON = "Worker daemon killed"
    DRIVER = "driver killed"
    SUBMIT = "spark-submit killed"
    FLOOD = "reservation port flooded"
    DISK = "disk full in the executor's folder"
    TENSORBOARD = "TensorBoard killed"
    NETWORK = "network between driver and a node cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """One fault in one input mode.

    `noticed_s` is from the fault, or from `deadline` where that is set, to the event that tells of it; `ended_s` from there to the
    end of `tfos`. None where nothing is to be noticed. `first_failure` is a node and its host. `at` is when it was measured.
    """

    fault: Fault
    mode: str
    noticed_s: float | None
    ended_s: float | None
    exit_code: int
    message: str
    first_failure: str
    leftovers: str
    deadline: str = ""
    at: str = ""


class FaultTable:
    """Rows in the order of `Fault`; written into `folder`, if there is one, with every new row.

    Rows that are in the folder's `faults.json` and were not measured again stay.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.rows: list[FaultRow] = []
        self.skipped: dict[str, str] = {}

    def add(self, row: FaultRow) -> None:
        """One more, in place of an earlier one of that fault and input mode; printed at once."""
        self.rows = [other for other in self.rows if (other.fault, other.mode) != (row.fault, row.mode)]
        self.rows.append(replace(row, at=time.strftime("%Y-%m-%d %H:%M:%S")))
        print("\n" + self._cells(row))
        if self._folder is not None:
            self.write(self._folder)

    def _keep_others(self, path: Path) -> None:
        if path.exists():
            there = [FaultRow(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
            measured = {(row.fault, row.mode) for row in self.rows}
            self.rows += [row for row in there if (row.fault, row.mode) not in measured]
        order = list(Fault)
        self.rows.sort(key=lambda row: (order.index(Fault(row.fault)), row.mode))

    def markdown(self) -> str:
        """A table for people."""
        head = ["fault", "input mode", "noticed after", "ended after", "exit code", "message", "left behind"]
        lines = [_line(head), _line(["---"] * len(head))]
        lines += [self._cells(row) for row in self.rows]
        lines += [f"\nNot run: {fault}: {reason}" for fault, reason in self.skipped.items()]
        return "\n".join(lines) + "\n"

    def _cells(self, row: FaultRow) -> str:
        noticed = "-" if row.noticed_s is None else f"{row.noticed_s:.1f} s" + (f" ({row.deadline})" if row.deadline else "")
        ended = "-" if row.ended_s is None else f"{row.ended_s:.1f} s"
        message = row.message if len(row.message) < _LONGEST_MESSAGE else row.message[:_LONGEST_MESSAGE] + " ..."
        return _line([row.fault, row.mode, noticed, ended, str(row.exit_code), message, row.leftovers])

    def write(self, folder: Path) -> None:
        """`faults.json` and `faults.md`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._keep_others(folder / "faults.json")
        facts = {
            "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        }
        data = facts | {"rows": [asdict(row) for row in self.rows], "not_run": self.skipped}
        (folder / "faults.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        days = " to ".join(sorted({min(row.at for row in self.rows)[:10], max(row.at for row in self.rows)[:10]}))
        text = f"# Faults\n\nOn {days}, {facts['machine']}; seconds from the fault, or from the deadline.\n\n"
        (folder / "faults.md").write_text(text + self.markdown(), encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
