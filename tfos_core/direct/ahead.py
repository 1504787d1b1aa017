"""Reads ahead: an iterator runs in a thread of its own, a few items before they are asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

__all__ = ("ahead",)

T = TypeVar("T")

#: Until the thread is given up; it ends after the item that it is at.
_JOIN_S = 10.0


def ahead(items: Iterator[T], depth: int = 2) -> Generator[T, None, None]:
    """The same items in the same order, and whatever `items` raises.

    So that reading and checksums, which let go of the interpreter, go on beside what is done with the items. Closing this ends the
    thread.

    Args:
        depth: items that wait at most.
    """
    buffer = _Buffer(items, depth)
    thread = threading.Thread(target=buffer.fill, name="tfos-read-ahead", daemon=True)
    thread.start()
    try:
        yield from buffer.items()
    finally:
        buffer.stop()
        thread.join(_JOIN_S)


class _Buffer(Generic[T]):
    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._items = items
        self._depth = depth
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._stopped = False
        self._error: BaseException | None = None

    def fill(self) -> None:
        """The thread's work."""
        try:
            for item in self._items:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._waiting) < self._depth or self._stopped)
                    if self._stopped:
                        break
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, it is raised where the items are wanted
            self._error = exc
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def items(self) -> Iterator[T]:
        """What comes."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    break
                item = self._waiting.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """No more items are wanted."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
