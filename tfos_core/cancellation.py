"""A request to stop that one thread makes and others hear at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

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

    def forget(self, callback: Callable[[str], None]) -> None:
        """Call this one no more: whoever lives shorter than the cancellation says so, or is kept by it."""
        with self._lock, contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    @contextlib.contextmanager
    def heard_by(self, callback: Callable[[str], None]) -> Iterator[None]:
        """Call this one when a stop is requested meanwhile."""
        self.on_request(callback)
        try:
            yield
        finally:
            self.forget(callback)

    def check(self) -> None:
        """Raise InterruptedRunError when a stop was requested."""
        if self._reason is not None:
            raise InterruptedRunError(f"the run was stopped: {self._reason}")
