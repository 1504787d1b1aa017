"""Which connections may wait without having proved themselves, and for how long. Pure: the time comes in as an argument."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ("Admission",)

C = TypeVar("C", bound=Hashable)


@dataclass(slots=True, kw_only=True)
class Admission(Generic[C]):
    """At most `limit` strangers at a time, each for at most `time_limit_s`.

    When it is full, the longest-waiting stranger makes room for a new one once it has had `grace_s`: a node proves itself within
    two round trips, so that someone who opens connections and says nothing delays nobody for long.
    """

    limit: int
    time_limit_s: float
    grace_s: float
    _since: dict[C, float] = field(default_factory=dict)

    def add(self, connection: C, now: float) -> None:
        """A connection was accepted."""
        self._since[connection] = now

    def discard(self, connection: C) -> None:
        """It has proved itself, or is gone."""
        self._since.pop(connection, None)

    def has_room(self) -> bool:
        """Whether another one may be accepted."""
        return len(self._since) < self.limit

    def overdue(self, now: float) -> list[C]:
        """Those whose time is over."""
        # Insertion order is the order of time, so the first one that may stay ends the search.
        late = []
        for connection, since in self._since.items():
            if now - since < self.time_limit_s:
                break
            late.append(connection)
        return late

    def replaceable(self, now: float) -> C | None:
        """Who has to make room, when it is full and somebody has had their grace."""
        if self.has_room():
            return None
        connection, since = next(iter(self._since.items()))
        return connection if now - since >= self.grace_s else None

    def next_change(self, now: float) -> float | None:
        """Seconds until `overdue` or `replaceable` may change by themselves; None when they will not."""
        since = next(iter(self._since.values()), None)
        if since is None:
            return None
        return max(0.0, since + (self.time_limit_s if self.has_room() else self.grace_s) - now)
