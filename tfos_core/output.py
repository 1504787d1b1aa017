"""The output of a node's process on its way to the driver: a full copy on disk, the last lines for errors, a capped stream."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tfos_core.settings import KEPT_OUTPUT_LINES, OUTPUT_LINES_PER_SECOND

__all__ = ("OutputRelay",)

_CHUNK_BYTES = 64 * 1024
_LONGEST_LINE = 8 * 1024


class OutputRelay:
    """Reads a pipe without blocking and cuts it into lines.

    Args:
        fd: the reading end; this object closes it.
        copy: file that gets every byte.
        send: called with (lines, dropped): lines for the driver, and how many more there were since the last call.
    """

    def __init__(self, fd: int, copy: Path, send: Callable[[list[str], int], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._copy = copy.open("ab", buffering=0)
        self._send = send
        self._rest = b""
        self._allowed = float(OUTPUT_LINES_PER_SECOND)
        self._allowed_at = time.monotonic()
        self._dropped = 0
        self.last_lines: deque[str] = deque(maxlen=KEPT_OUTPUT_LINES)

    def fileno(self) -> int:
        """For a selector."""
        return self._fd

    def read(self) -> bool:
        """Pass on what is there; False at the end of the pipe."""
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._write_copy(data)
        *whole, rest = (self._rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            whole.append(rest)
            rest = b""
        self._rest = rest
        self._pass_on([line.decode(errors="replace").rstrip("\r")[:_LONGEST_LINE] for line in whole])
        return True

    def drain(self) -> None:
        """Take what the pipe holds now, and the last line without an end; does not wait for others that still have it open."""
        while select.select([self._fd], [], [], 0)[0] and self.read():
            pass
        if self._rest:
            self._pass_on([self._rest.decode(errors="replace")])
            self._rest = b""

    def close(self) -> None:
        """Close the pipe and the copy."""
        os.close(self._fd)
        self._copy.close()

    def _write_copy(self, data: bytes) -> None:
        try:
            self._copy.write(data)
        except OSError:
            # a full disk must not take the node down; the stream to the driver goes on
            self._dropped += 1

    def _pass_on(self, lines: list[str]) -> None:
        if not lines:
            return
        self.last_lines.extend(lines)
        now = time.monotonic()
        self._allowed = min(OUTPUT_LINES_PER_SECOND, self._allowed + (now - self._allowed_at) * OUTPUT_LINES_PER_SECOND)
        self._allowed_at = now
        sent = lines[: int(self._allowed)]
        self._allowed -= len(sent)
        self._dropped += len(lines) - len(sent)
        if sent:
            self._send(sent, self._dropped)
            self._dropped = 0
