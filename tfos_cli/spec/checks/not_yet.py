"""Keys of the spec whose feature the engine does not offer yet: refused, so that nothing is silently ignored.

Delete an entry of the table when the feature is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfos_cli.spec.checks.finding import Case, Findings

__all__ = ("NOT_YET", "RULES", "NotYet")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotYet:
    """A key, whether a spec asks for more than there is, and what that is called."""

    field: str
    is_asked: Callable[[Case], bool]
    what: str
    instead: str


NOT_YET = (
    NotYet(
        field="data.cache",
        is_asked=lambda case: case.spec.data is not None and case.spec.data.cache == "node",
        what="data.cache: node",
        instead="Set data.cache: none.",
    ),
)


def not_yet(case: Case) -> Findings:
    """Everything of the table that the spec asks for."""
    for entry in NOT_YET:
        if entry.is_asked(case):
            yield case.error("not-supported-yet", entry.field, f"{entry.what} is not supported yet", entry.instead)


RULES = (not_yet,)
