"""A supervisor's link to the Spark task that started it, until it lets the task go."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from tfos_core.errors import ChannelClosedError
from tfos_core.link import Link

__all__ = ("TaskLine",)


class TaskLine:
    """Nothing here fails when the task is gone already."""

    def __init__(self, link: Link, selector: selectors.BaseSelector) -> None:
        self._link: Link | None = link
        self._selector = selector

    def watch(self, on_end: Callable[[], None]) -> None:
        """Have the selector call `on_end` when the task has something to say, which is nothing but its end."""
        if self._link is not None:
            self._selector.register(self._link, selectors.EVENT_READ, on_end)

    def has_ended(self) -> bool:
        """Whether what came is the end of the task."""
        if self._link is not None:
            with contextlib.suppress(ChannelClosedError):
                self._link.receive()
                return False
        return True

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        if self._link is not None:
            with contextlib.suppress(ChannelClosedError):
                self._link.send(message)

    def tell_end(self, error: str | None = None, traceback: str = "") -> None:
        """Say that the node has ended, well if there is no error."""
        failure = {} if error is None else {"error": error, "traceback": traceback}
        self.tell({"op": "ended", "ok": error is None, **failure})

    def let_go(self) -> None:
        """Close the link, after which the task ends; may be called twice."""
        if self._link is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._link)
            self._link.close()
            self._link = None
