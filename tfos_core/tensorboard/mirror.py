"""Copies a node's event files to storage that TensorFlow does not write to: now and then, and once more at the end.

File systems differ in what they can append to, so a file that has grown is copied anew and takes the place of its
older copy.
"""

from __future__ import annotations

import contextlib
import posixpath
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.errors import TfosError
from tfos_core.storage import publish
from tfos_core.tensorboard.collector import Collector
from tfos_core.tensorboard.event_files import EventFile, event_files_below

__all__ = ("Mirror",)

#: Copies are whole, so there are fewer rounds than when only what is new is sent, in seconds.
_INTERVAL_S = 30.0
#: The supervisor gives up earlier.
_LONGEST_WAIT_S = 120.0


class Mirror:
    """A thread from `start` to the end of the last round, which `finish` asks for; readable (`fileno`) once it is over.

    Args:
        folder: the node's log folder.
        target: the URL that is to hold the same files.
        node: its name, for messages.
        send: to the driver; from the thread.
        after: this is over only when the collector is, too.
    """

    def __init__(
        self,
        folder: Path,
        target: str,
        *,
        node: str,
        send: Callable[[Mapping[str, Any]], None],
        interval_s: float = _INTERVAL_S,
        after: Collector | None = None,
    ) -> None:
        self._folder = folder
        self._target = target
        self._node = node
        self._send = send
        self._interval_s = interval_s
        self._after = after
        self._copied: dict[str, EventFile] = {}
        self._changed = threading.Condition()
        self._finishing = False
        self._stopped = False
        self._warned = False
        self._over = threading.Event()
        self._ready, self._over_sock = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="tfos-mirror", daemon=True)

    def start(self) -> None:
        """Begin with the rounds."""
        self._thread.start()

    def finish(self) -> None:
        """Nothing will be written any more: copy the rest now. Again is no error."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether the last round has ended."""
        return self._over.is_set()

    def fileno(self) -> int:
        """Readable once it is over."""
        return self._ready.fileno()

    def left_behind(self) -> str:
        """For people: what was not copied and where it is; empty when that is nothing."""
        count = len(self._pending())
        return f"{count} event files of {self._node} were not copied to {self._target}; they are in {self._folder}" if count else ""

    def close(self) -> None:
        """Give up what is not copied; may be called twice."""
        with self._changed:
            self._stopped = self._finishing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._ready.close()
        self._over_sock.close()

    def _run(self) -> None:
        try:
            last = False
            while not last and not self._stopped:
                with self._changed:
                    self._changed.wait_for(lambda: self._finishing or self._stopped, self._interval_s)
                # Looked at before the round: what was written until `finish` was called is in the last one.
                last = self._finishing
                self._round()
            if self._after is not None and not self._stopped:
                self._after.wait(_LONGEST_WAIT_S)
        finally:
            self._over.set()
            with contextlib.suppress(OSError):
                self._over_sock.send(b"\0")

    def _round(self) -> None:
        for file in self._pending():
            if self._stopped:
                return
            try:
                publish(file.place, posixpath.join(self._target, file.path))
            except (OSError, TfosError) as exc:
                self._warn(exc)
                return
            # As it was found: what has been written since is for the next round.
            self._copied[file.path] = file

    def _pending(self) -> list[EventFile]:
        return [file for file in event_files_below(self._folder) if self._copied.get(file.path) != file]

    def _warn(self, exc: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        self._send(
            {
                "op": "node.warning",
                "id": "tensorboard-mirror",
                "message": f"event files of {self._node} can not be copied to {self._target}: {exc}",
                "hint": getattr(exc, "hint", None) or "It is tried again while the job runs.",
            }
        )
