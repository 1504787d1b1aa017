"""Copies a node's event files to storage that TensorFlow does not write to: now and then, and once more at the end.

File systems differ in what they can append to, so a file that has grown is copied anew and takes the place of its
older copy.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.errors import TfosError
from tfos_core.storage import publish
from tfos_core.tensorboard.collector import Collector
from tfos_core.tensorboard.event_files import EventFile, event_files_below
from tfos_core.tensorboard.rounds import Rounds

__all__ = ("Mirror",)

#: Copies are whole, so there are fewer rounds than when only what is new is sent, in seconds.
_INTERVAL_S = 30.0
#: The supervisor gives up earlier.
_LONGEST_WAIT_S = 120.0


class Mirror(Rounds):
    """Copies; over when `after` is, too.

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
        super().__init__("tfos-mirror", interval_s)
        self._folder = folder
        self._target = target
        self._node = node
        self._send = send
        self._after = after
        self._copied: dict[str, EventFile] = {}
        self._warned = False

    def left_behind(self) -> str:
        """For people: what was not copied and where it is; empty when that is nothing."""
        count = len(self._pending())
        return f"{count} event files of {self._node} were not copied to {self._target}; they are in {self._folder}" if count else ""

    def _round(self, *, last: bool) -> None:
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

    def _after_last(self) -> None:
        if self._after is not None and not self._stopped:
            self._after.wait(_LONGEST_WAIT_S)

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
