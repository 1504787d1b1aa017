"""Children that a supervisor gets when their own parents end: nobody asks how they ended, and they would stay as zombies."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection

from tfos_core.processes import reap_strangers
from tfos_core.timers import Timers

__all__ = ("AdoptedChildren", "child_pipe")

#: They are looked for at most so often, in seconds: a program may start and leave thousands.
_PAUSE_S = 1.0


class AdoptedChildren:
    """For a selector loop.

    Args:
        fd: becomes readable when a child has ended (`signal.set_wakeup_fd`).
        spare: the children that somebody waits for.
    """

    def __init__(self, fd: int, timers: Timers, *, spare: Callable[[], Collection[int]]) -> None:
        self._fd = fd
        self._timers = timers
        self._spare = spare

    def fileno(self) -> int:
        """For a selector."""
        return self._fd

    def on_readable(self) -> None:
        """Look soon."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 4096):
                pass
        self._timers.set("reap", _PAUSE_S, self._reap, sooner_only=True)

    def _reap(self) -> None:
        reap_strangers(spare=self._spare())


def child_pipe() -> int:
    """A file descriptor that becomes readable when a child has ended, in a process that handles SIGCHLD; for its main thread."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading
