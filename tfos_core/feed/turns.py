"""One at a time, in order of arrival: a node serves one partition of an inference at a time."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ("Turns",)


class Turns:
    """A fair lock whose waiters can be sent home."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._closed = False

    def wait(self, ticket: object) -> bool:
        """Wait until every earlier ticket was given back; False when it was closed or the ticket was given back meanwhile."""
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(lambda: self._closed or ticket not in self._queue or self._queue[0] is ticket)
            return not self._closed and ticket in self._queue

    def give_back(self, ticket: object) -> None:
        """Let the next one go ahead; idempotent."""
        with self._changed:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def close(self) -> None:
        """Send everybody home."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
