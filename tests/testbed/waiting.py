"""Bounded waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ("Deadline", "poll_until")

T = TypeVar("T")


class Deadline:
    """A point in monotonic time, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.left == 0.0


def poll_until(predicate: Callable[[], T], deadline: float, *, what: str | Callable[[], str] = "") -> T:
    """Call `predicate` until it returns something true, and return that.

    For states that nothing announces (another process's files, /proc). Looks often at first, then ten times a second.

    Args:
        deadline: seconds after which the wait fails; the predicate is asked once more at the end.
        what: what was waited for, for the error; a function is called only then.

    Raises:
        AssertionError: the predicate stayed false.
    """
    end = Deadline(deadline)
    pause = 0.005
    while True:
        was_over = end.is_over
        value = predicate()
        if value:
            return value
        if was_over:
            text = what() if callable(what) else what
            raise AssertionError(f"after {deadline:g} s still not: {text or getattr(predicate, '__name__', predicate)}")
        time.sleep(min(pause, end.left))
        pause = min(pause * 1.5, 0.1)
