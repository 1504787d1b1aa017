"""Notices the death of the process that started this one: in client mode the JVM, which owns the SparkContext."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from typing import Self

__all__ = ("ParentWatch",)

#: How often the parent's number is looked at where there is no pidfd (macOS).
_LOOK_EVERY_S = 1.0


class ParentWatch:
    """Calls `on_death` once, from its own thread, in the moment the parent ends."""

    def __init__(self, on_death: Callable[[], None]) -> None:
        self._on_death = on_death
        self._parent = os.getppid()
        self._pidfd = _open_pidfd(self._parent)
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="tfos-parent-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._wake_write)
        if self._thread is not threading.current_thread():
            self._thread.join()
        os.close(self._wake_read)
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if self._pidfd is not None:
            poller.register(self._pidfd, select.POLLIN)
        while True:
            timeout = None if self._pidfd is not None else _LOOK_EVERY_S * 1000
            ready = {descriptor for descriptor, _ in poller.poll(timeout)}
            if self._wake_read in ready:
                return
            # a parent that died before the pidfd was opened has already been replaced by another one
            if self._pidfd in ready or os.getppid() != self._parent:
                self._on_death()
                return


def _open_pidfd(pid: int) -> int | None:
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    with contextlib.suppress(OSError):
        descriptor: int = opener(pid)
        return descriptor
    return None
