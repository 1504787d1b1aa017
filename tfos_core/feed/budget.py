"""How many bytes of rows a node holds: readers wait here before they read a block from their socket."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ("ByteBudget",)


class ByteBudget:
    """First come, first served, so that a large block is not starved by small ones; one above the budget is admitted alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._closed = False
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def used(self) -> int:
        """Bytes taken now."""
        return self._used

    def reserve(self, size: int) -> bool:
        """Wait until `size` bytes are free and take them; False when the budget was closed meanwhile.

        The wait ends with the consumer's next step or with `close`, and is not bounded otherwise: that is back-pressure.
        """
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            while not self._closed and not (self._waiting[0] is ticket and (self._used == 0 or self._used + size <= self._limit)):
                self._changed.wait()
            self._waiting.remove(ticket)
            self._changed.notify_all()
            if self._closed:
                return False
            self._used += size
            return True

    def release(self, size: int) -> None:
        """Give `size` bytes back."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in any more, and wake whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
