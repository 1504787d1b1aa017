"""Which connections may wait without having proved themselves, and for how long. Pure: the time comes in as an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ("Admission",)

C = TypeVar("C", bound=Hashable)

#: A host that has more than half of the places gets this part of the grace: a node needs two round trips, not a second.
_CROWD_GRACE = 1 / 20


@dataclass(slots=True, kw_only=True)
class Admission(Generic[C]):
    """At most `limit` strangers at a time, each for at most `time_limit_s`.

    When it is full, the longest-waiting stranger makes room for a new one once it has had `grace_s`: a node proves itself within
    two round trips, so that someone who opens connections and says nothing delays nobody for long. When one host has more than
    half of the places, the longest-waiting one of that host makes room, and soon, so that it takes nothing away from the others.
    """

    limit: int
    time_limit_s: float
    grace_s: float
    _since: dict[C, tuple[float, str]] = field(default_factory=dict)
    _hosts: Counter[str] = field(default_factory=Counter)

    def add(self, connection: C, now: float, host: str = "") -> None:
        """A connection from `host` was accepted."""
        self._since[connection] = now, host
        self._hosts[host] += 1

    def discard(self, connection: C) -> None:
        """It has proved itself, or is gone."""
        known = self._since.pop(connection, None)
        if known is not None:
            _, host = known
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]

    def has_room(self) -> bool:
        """Whether another one may be accepted."""
        return len(self._since) < self.limit

    def overdue(self, now: float) -> list[C]:
        """Those whose time is over."""
        # Insertion order is the order of time, so the first one that may stay ends the search.
        late = []
        for connection, (since, _) in self._since.items():
            if now - since < self.time_limit_s:
                break
            late.append(connection)
        return late

    def replaceable(self, now: float) -> C | None:
        """Who has to make room, when it is full and somebody has had their grace."""
        if self.has_room():
            return None
        connection, until = self._next_to_go()
        return connection if now >= until else None

    def next_change(self, now: float) -> float | None:
        """Seconds until `overdue` or `replaceable` may change by themselves; None when they will not."""
        oldest, _ = next(iter(self._since.values()), (None, ""))
        if oldest is None:
            return None
        until = oldest + self.time_limit_s
        if not self.has_room():
            until = min(until, self._next_to_go()[1])
        return max(0.0, until - now)

    def _next_to_go(self) -> tuple[C, float]:
        """Who makes room first when there is none, and when."""
        crowd, count = max(self._hosts.items(), key=lambda entry: entry[1])
        is_crowd = count > self.limit // 2
        for connection, (since, host) in self._since.items():
            if not is_crowd:
                return connection, since + self.grace_s
            if host == crowd:
                return connection, since + self.grace_s * _CROWD_GRACE
        raise AssertionError("unreachable")
