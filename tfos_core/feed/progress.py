"""When a node last consumed a row, readable without its help: 16 bytes of memory that processes of a host share.

A feed task that waits looks at it only when its wait ends. So a TensorFlow process whose interpreter lock is stuck can neither
hide a timeout nor fake one. Times are CLOCK_MONOTONIC seconds, which all processes of a host share.

The memory is the supervisor's (memfd_create(2)), found by a link into /proc, and gone with it. In a mapped file on a disk the first
store after its page was written back starts a transaction of the file system, with the interpreter lock held; that is only what
platforms without such memory get.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ("ProgressReader", "ProgressWriter", "offer_memory")

_RECORD = struct.Struct("=dQ")


def offer_memory(path: Path) -> int | None:
    """The supervisor's side: `path` leads to memory as long as the descriptor that this returns is open in this process.

    Returns None, and makes nothing, where that is not possible; then the node's process makes a file.
    """
    with contextlib.ExitStack() as undo, contextlib.suppress(OSError, AttributeError):
        descriptor = os.memfd_create("tfos-progress")
        undo.callback(os.close, descriptor)
        os.ftruncate(descriptor, _RECORD.size)
        link = f"/proc/{os.getpid()}/fd/{descriptor}"
        # /proc may be that of other pids than those of this process.
        if os.path.samestat(Path(link).stat(), os.fstat(descriptor)):
            path.symlink_to(link)
            undo.pop_all()
            return descriptor
    return None


class ProgressWriter:
    """The node's side: `advance(rows)` after every consumption."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        descriptor = _open_for_writing(path)
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
        """Unmap; what is there stays as long as the supervisor, a file as long as its folder."""
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
            # A link of a supervisor that was killed may lead to anything; to open a pipe would wait for its writer.
            with contextlib.suppress(OSError, ValueError), open(self._path, "rb", opener=_open_at_once) as file:
                self._map = mmap.mmap(file.fileno(), _RECORD.size, access=mmap.ACCESS_READ)
        return 0.0 if self._map is None else float(_RECORD.unpack_from(self._map, 0)[0])

    def close(self) -> None:
        """Unmap; idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None


def _open_for_writing(path: Path) -> int:
    """The memory that the supervisor offered; a file, where it did not, or where this process may not have it."""
    if path.is_symlink():
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        path.unlink()
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
