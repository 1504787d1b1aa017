"""The result of `tfos env-check`: as text, as JSON, and kept for `tfos report`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tfos_cli.envcheck.check import Check, Status, merged, worst
from tfos_cli.envcheck.cluster import DRIVER
from tfos_cli.envcheck.differences import Difference
from tfos_cli.ui.console import Console, Style

__all__ = ("CheckResult", "keep", "show")

_STYLES = {Status.FAILURE: Style.ERROR, Status.WARNING: Style.WARNING, Status.OK: Style.SUCCESS}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Everything that was found; `spec` and `run_id` are None when only this machine was looked at."""

    checks: tuple[Check, ...]
    differences: tuple[Difference, ...] = ()
    spec: str | None = None
    run_id: str | None = None
    machines: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst of all checks."""
        return worst(self.checks)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "v": 1,
            "ts": round(time.time(), 3),
            "status": str(self.status),
            "spec": self.spec,
            "run_id": self.run_id,
            "differences": [difference.to_dict() for difference in self.differences],
            "checks": [check.to_dict() for check in merged(self.checks)],
            "machines": dict(self.machines),
        }


def show(console: Console, result: CheckResult) -> None:
    """Write the report to stdout: the odd one out, what is wrong, what is in order."""
    if console.json:
        console.result_json(result.to_dict())
        return
    for machine, found in groupby(result.differences, key=lambda difference: difference.machine):
        _show_differences(console, machine, tuple(found))
    checks = merged(result.checks)
    places = {place for check in checks for place in check.where}
    width = max(len(check.id) for check in checks)
    for check in checks:
        where = _where(check.where, places)
        status = console.styled(f"{check.status:<7}", _STYLES[check.status], stream=console.stdout)
        console.result(f"{status}  {check.id:<{width}}  {f'{where}: ' if where else ''}{check.found}")
        if check.fix and check.status is not Status.OK:
            console.result(f"{'':7}  {'':{width}}  {check.fix}")
    counts = Counter(check.status for check in checks)
    console.result(", ".join(_counted(counts[status], status) for status in (Status.FAILURE, Status.WARNING, Status.OK)))


def keep(result: CheckResult, *paths: Path) -> None:
    """Write the result as JSON, for the user only, where a report looks for it; a place that does not take it is skipped."""
    for path in paths:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(result.to_dict(), file, indent=1)
            temporary.replace(path)


def _show_differences(console: Console, machine: str, found: Sequence[Difference]) -> None:
    console.result(f"{console.styled(machine, Style.BOLD, stream=console.stdout)} differs:")
    width = max(len(difference.aspect) for difference in found)
    for difference in found:
        console.result(
            f"  {difference.aspect:<{width}}  {difference.has}   "
            f"({difference.count} of {difference.others} others: {difference.majority})"
        )
    console.result("")


def _where(places: tuple[str, ...], known: set[str], most: int = 4) -> str:
    """The machines of a check; nothing when it is about this one, or about all."""
    if not places or set(places) == known:
        return ""
    if len(places) > 1 and set(places) == known - {DRIVER}:
        return "every executor"
    rest = len(places) - most
    return ", ".join(places[:most]) + (f" and {rest} more" if rest > 0 else "")


def _counted(count: int, status: Status) -> str:
    return f"{count} {status}" if status is Status.OK or count == 1 else f"{count} {status}s"
