"""One thing that was checked, and how many of them become one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

__all__ = ("Check", "Status", "merged", "worst")


class Status(StrEnum):
    """A failure keeps jobs from running, a warning may."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


_ORDER = (Status.FAILURE, Status.WARNING, Status.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was looked at (`id`), what was found, and what to do about it; `where` names machines, empty for this one."""

    id: str
    status: Status
    found: str
    fix: str = ""
    where: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "check": self.id,
            "status": str(self.status),
            "found": self.found,
            "fix": self.fix,
            "where": list(self.where),
        }


def worst(checks: Iterable[Check]) -> Status:
    """The worst status of all; ok when there is none."""
    found = {check.status for check in checks}
    return next((status for status in _ORDER if status in found), Status.OK)


def merged(checks: Sequence[Check]) -> tuple[Check, ...]:
    """What several machines have in common said once, failures first; what is in order is left out where the same check fails."""
    places: dict[Check, list[str]] = {}
    for check in checks:
        places.setdefault(replace(check, where=()), []).extend(check.where)
    bad = {check.id for check in places if check.status is not Status.OK}
    kept = [replace(c, where=tuple(dict.fromkeys(w))) for c, w in places.items() if c.status is not Status.OK or c.id not in bad]
    return tuple(sorted(kept, key=lambda check: _ORDER.index(check.status)))
