"""The thread behind whatever copies a node's event files: rounds at intervals, and a last one when asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod

__all__ = ("Rounds",)


class Rounds(ABC):
    """A thread from `start` to the end of the last round, which `finish` asks for; readable (`fileno`) once it is over.

    Args:
        name: of the thread.
        interval_s: seconds between rounds.
    """

    def __init__(self, name: str, interval_s: float) -> None:
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._finishing = False
        self._stopped = False
        self._over = threading.Event()
        self._ready, self._over_sock = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with the rounds."""
        self._thread.start()

    def finish(self) -> None:
        """Nothing will be written any more: take the rest now. Again is no error."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether the last round has ended, or no more are wanted."""
        return self._over.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Until it is over, at most so long; whether it is."""
        return self._over.wait(timeout_s)

    def fileno(self) -> int:
        """Readable once it is over."""
        return self._ready.fileno()

    def close(self) -> None:
        """Give up what is not taken; may be called twice."""
        with self._changed:
            self._stopped = self._finishing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._ready.close()
        self._over_sock.close()

    @abstractmethod
    def _round(self, *, last: bool) -> None:
        """Take what there is now."""

    def _after_last(self) -> None:  # noqa: B027 - nothing, unless a subclass has something
        """What comes behind the last round and before it is over."""

    def _run(self) -> None:
        try:
            last = False
            while not last and not self._stopped:
                with self._changed:
                    self._changed.wait_for(lambda: self._finishing or self._stopped, self._interval_s)
                # Looked at before the round: what was written until `finish` was called is in the last one.
                last = self._finishing
                self._round(last=last)
            self._after_last()
        finally:
            self._over.set()
            with contextlib.suppress(OSError):
                self._over_sock.send(b"\0")
