"""The output of a node's process on its way to the driver: a full copy on disk, the last lines for errors, a capped stream."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tfos_core.settings import KEPT_OUTPUT_LINES, OUTPUT_LINES_PER_SECOND

__all__ = ("OutputRelay",)

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
_LONGEST_LINE = 8 * 1024


class OutputRelay:
    """Reads a pipe without blocking and cuts it into lines.

    Args:
        fd: the reading end; this object closes it.
        copy: file that gets every byte; without it (a full disk) the rest goes on.
        send: called with (lines, dropped): lines for the driver, and how many were left out before them.
        on_copy_end: called with the reason when no more can be copied; not before the first `read`.
    """

    def __init__(
        self,
        fd: int,
        copy: Path,
        send: Callable[[list[str], int], None],
        *,
        on_copy_end: Callable[[str], None] = lambda why: None,
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._copy: BinaryIO | None = None
        self._on_copy_end = on_copy_end
        self._copy_problem = ""
        with self._without_copy_on_error():
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
        self._take(data)
        return True

    def add(self, text: str) -> None:
        """Lines of the supervisor's own among those of the process."""
        self._take(b"\n" * bool(self._rest) + text.rstrip("\n").encode() + b"\n")

    def _take(self, data: bytes) -> None:
        if self._copy is not None:
            with self._without_copy_on_error():
                self._copy.write(data)
        if self._copy_problem:
            why, self._copy_problem = self._copy_problem, ""
            self._on_copy_end(why)
        *whole, rest = (self._rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            whole.append(rest)
            rest = b""
        self._rest = rest
        self._pass_on([line.decode(errors="replace").rstrip("\r")[:_LONGEST_LINE] for line in whole])

    def drain(self) -> None:
        """Take what the pipe holds now, and the last line without an end; does not wait for others that still have it open.

        Says how many lines were left out at the end.
        """
        while select.select([self._fd], [], [], 0)[0] and self.read():
            pass
        if self._rest:
            self._pass_on([self._rest.decode(errors="replace")])
            self._rest = b""
        if self._dropped:
            self._send([], self._dropped)
            self._dropped = 0

    def close(self) -> None:
        """Close the pipe and the copy."""
        os.close(self._fd)
        if self._copy is not None:
            self._copy.close()

    @contextlib.contextmanager
    def _without_copy_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            logger.warning("no more output is copied to the executor's folder: %s", exc)
            self._copy_problem = str(exc)
            if self._copy is not None:
                self._copy.close()
                self._copy = None

    def _pass_on(self, lines: list[str]) -> None:
        if not lines:
            return
        self.last_lines.extend(lines)
        now = time.monotonic()
        self._allowed = min(OUTPUT_LINES_PER_SECOND, self._allowed + (now - self._allowed_at) * OUTPUT_LINES_PER_SECOND)
        self._allowed_at = now
        sent = lines[: int(self._allowed)]
        self._allowed -= len(sent)
        if sent:
            self._send(sent, self._dropped)
            self._dropped = 0
        self._dropped += len(lines) - len(sent)
