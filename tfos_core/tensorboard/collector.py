"""Sends what is new in a node's event files to the driver: every few seconds, and once more at the end.

One piece is under way at a time: the driver says when it has written it. So a slow disk there slows this down and nothing else, and
what waits in the driver's memory is bounded by the number of nodes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.tensorboard.event_files import EventFiles, Piece
from tfos_core.tensorboard.rounds import Rounds

__all__ = ("Collector",)

_PIECE_BYTES = 128 * 1024
#: Of one node, in bytes; what is beyond stays on the node.
_LIMIT_BYTES = 256 * 1024 * 1024
#: While the program runs; the last round goes as fast as the driver takes it.
_BYTES_PER_S = 4 * 1024 * 1024
#: A driver that is silent for so long does not collect any more, in seconds.
_ANSWER_S = 30.0


class Collector(Rounds):
    """Sends; over also when the driver wants no more.

    Args:
        folder: the node's log folder; files that are there when this object is made are left out unless they grow.
        node: its name, for messages.
        send: to the driver; from the thread.
        interval_s: seconds between rounds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node: str,
        send: Callable[[Mapping[str, Any]], None],
        interval_s: float,
        limit_bytes: int = _LIMIT_BYTES,
    ) -> None:
        super().__init__("tfos-collector", interval_s)
        self._folder = folder
        self._node = node
        self._send = send
        self._limit_bytes = limit_bytes
        self._files = EventFiles(folder, piece_bytes=_PIECE_BYTES, limit_bytes=limit_bytes)
        self._answered = False

    def start(self) -> None:
        """Begin with the rounds."""
        self._send({"op": "files.begin"})
        super().start()

    def on_message(self, message: Mapping[str, Any]) -> None:
        """What the driver says; never waits."""
        with self._changed:
            if message["op"] == "files.taken":
                self._answered = True
            elif message["op"] == "files.refused":
                self._stopped = True
            self._changed.notify_all()

    def left_behind(self) -> str:
        """For people: what was not sent and where it is; empty when that is nothing."""
        count = self._files.pending_bytes()
        return f"{count} bytes of the event files of {self._node} were not collected; they are in {self._folder}" if count else ""

    def _round(self, *, last: bool) -> None:
        if self._stopped:
            return
        for piece in self._files.pending():
            if not self._deliver(piece):
                return
            if not last:
                self._pause(len(piece.data) / _BYTES_PER_S)
        if self._files.is_full:
            self._stopped = True
            mib = self._limit_bytes >> 20
            self._send(
                {
                    "op": "node.warning",
                    "id": "tensorboard-collect",
                    "message": f"{self._node} has written more than {mib} MiB of event files; the rest stays in {self._folder}",
                    "hint": "Write summaries less often, or set tensorboard.log_dir to a folder that outlives the executors.",
                }
            )

    def _after_last(self) -> None:
        self._send({"op": "files.done"})

    def _deliver(self, piece: Piece) -> bool:
        """Send a piece and wait until the driver has it; False when this ends the collecting."""
        with self._changed:
            self._answered = False
        data = base64.b64encode(piece.data).decode("ascii")
        self._send({"op": "files.piece", "path": piece.path, "offset": piece.offset, "data": data})
        with self._changed:
            if not self._changed.wait_for(lambda: self._answered or self._stopped, _ANSWER_S):
                self._stopped = True
            return self._answered and not self._stopped

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._finishing or self._stopped, seconds)
