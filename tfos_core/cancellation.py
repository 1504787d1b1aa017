"""A request to stop that one thread makes and others hear at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfos_core.errors import InterruptedRunError

__all__ = ("Cancellation",)


class Cancellation:
    """Set once; callbacks run in the thread that requests, or at once when they come later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[str], None]] = []
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the run was asked to stop, or None when it was not."""
        return self._reason

    def request(self, reason: str) -> None:
        """Ask everybody to stop; only the first request counts."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(reason)

    def on_request(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` when a stop is requested, or now if it already was."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
            reason = self._reason
        callback(reason)

    def check(self) -> None:
        """Raise InterruptedRunError when a stop was requested."""
        if self._reason is not None:
            raise InterruptedRunError(f"the run was stopped: {self._reason}")
