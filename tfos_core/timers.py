"""What is to be done later, for a loop that asks how long it may sleep; belongs to one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ("Timers",)


class Timers:
    """Named timers; each runs once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def set(self, name: str, seconds: float, call: Callable[[], None], *, sooner_only: bool = False) -> None:
        """Do something in so many seconds instead of what this name stood for; with `sooner_only` the earlier of both stays."""
        at = self._clock() + seconds
        known = self._timers.get(name)
        if not (sooner_only and known is not None and known[0] <= at):
            self._timers[name] = at, call

    def cancel(self, *names: str) -> None:
        """Forget these, as far as they are there."""
        for name in names:
            self._timers.pop(name, None)

    def seconds_left(self) -> float | None:
        """Until the next one is due; None when there is none."""
        return max(0.0, min(at for at, _ in self._timers.values()) - self._clock()) if self._timers else None

    def run_due(self) -> None:
        """Do what is due, the earliest first."""
        now = self._clock()
        for name, (at, call) in sorted(self._timers.items(), key=lambda item: item[1][0]):
            # An earlier one may have cancelled or moved it.
            if at <= now and self._timers.get(name) == (at, call):
                del self._timers[name]
                call()
