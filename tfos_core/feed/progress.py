"""When a node last consumed a row, readable without its help: a memory-mapped file of 16 bytes.

A feed task that waits looks at it only when its wait ends. So a TensorFlow process whose interpreter lock is stuck can neither
hide a timeout nor fake one. Times are CLOCK_MONOTONIC seconds, which all processes of a host share.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ("ProgressReader", "ProgressWriter")

_RECORD = struct.Struct("=dQ")


class ProgressWriter:
    """The node's side: `advance(rows)` after every consumption."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            os.ftruncate(descriptor, _RECORD.size)
            self._map = mmap.mmap(descriptor, _RECORD.size)
        finally:
            os.close(descriptor)
        self._clock = clock
        self._rows = 0

    def advance(self, rows: int) -> None:
        """Note that `rows` more rows were consumed now."""
        self._rows += rows
        _RECORD.pack_into(self._map, 0, self._clock(), self._rows)

    def close(self) -> None:
        """Unmap; the file stays until its folder goes."""
        self._map.close()


class ProgressReader:
    """A feed task's side. A file that is not there means that nothing was consumed yet: a feed task may connect before the node's
    process has made it, so it is looked for again at every question."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | None = None

    def last_consumed(self) -> float:
        """CLOCK_MONOTONIC seconds of the last consumption, 0.0 when there was none."""
        if self._map is None:
            with contextlib.suppress(OSError, ValueError), self._path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), _RECORD.size, access=mmap.ACCESS_READ)
        return 0.0 if self._map is None else float(_RECORD.unpack_from(self._map, 0)[0])

    def close(self) -> None:
        """Unmap; idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None
