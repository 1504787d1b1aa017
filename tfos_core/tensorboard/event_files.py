"""Which bytes of the event files below a folder have not been sent yet. Event files grow at their end only."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tfos_core.tensorboard.folder import checked_path, is_event_file

__all__ = ("EventFile", "EventFiles", "Piece", "event_files_below")

#: A folder with more event files than this is not looked through to its end.
_MOST_FILES = 10_000
#: Keras under MultiWorkerMirroredStrategy lets workers write here and removes it at the end of `fit`: only the chief's count.
_THROWN_AWAY = "workertemp_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of one file; an offset of 0 begins the file anew. `path` is relative, with `/`."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """A file as it was found: `path` is relative, with `/`, and `place` is where it is on this machine."""

    path: str
    place: str
    size: int
    inode: int


class EventFiles:
    """Remembers how far each file was sent; belongs to one thread.

    Args:
        folder: may not exist yet.
        piece_bytes: the most bytes in one piece.
        limit_bytes: the most bytes in all; then `is_full` becomes true and no more pieces come.
    """

    def __init__(self, folder: Path, *, piece_bytes: int, limit_bytes: int) -> None:
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._left = limit_bytes
        self._sent: dict[tuple[str, int], int] = {}
        # Files of an earlier run in a folder that somebody chose belong to that run, unless they grow.
        self._old = {file.path: file.size for file in self._scan()}
        self.is_full = False

    def pending(self) -> Iterator[Piece]:
        """What is new. A piece counts as sent when the next one is asked for, so stop iterating when one could not be sent."""
        for file in self._scan():
            if self._old.get(file.path) == file.size:
                continue
            self._old.pop(file.path, None)
            try:
                yield from self._pieces_of(file)
            except OSError:
                continue  # it was removed meanwhile
            if self.is_full:
                return

    def pending_bytes(self) -> int:
        """How many bytes have not been sent, for a message."""
        sent = self._sent
        files = [file for file in self._scan() if self._old.get(file.path) != file.size]
        return sum(max(0, file.size - sent.get((file.path, file.inode), 0)) for file in files)

    def _pieces_of(self, file: EventFile) -> Iterator[Piece]:
        key = (file.path, file.inode)
        offset = self._sent.get(key, 0)
        if offset > file.size:
            offset = 0  # somebody wrote it again
        with open(file.place, "rb") as stream:  # noqa: PTH123 - a place that os.walk gave
            # As far as it reached when it was looked at: a file that grows faster than it is sent must not keep the others waiting.
            while offset < file.size:
                stream.seek(offset)
                data = stream.read(min(self._piece_bytes, file.size - offset))
                if not data:
                    return
                if len(data) > self._left:
                    self.is_full = True
                    return
                yield Piece(path=file.path, offset=offset, data=data)
                offset += len(data)
                self._sent[key] = offset
                self._left -= len(data)

    def _scan(self) -> list[EventFile]:
        return event_files_below(self._folder)


def event_files_below(folder: Path) -> list[EventFile]:
    """The event files of a folder, which may not exist; a bounded number of them."""
    return list(islice(_walk(folder), _MOST_FILES))


def _walk(root: Path) -> Iterator[EventFile]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(_THROWN_AWAY))
        for name in sorted(filter(is_event_file, names)):
            place = os.path.join(folder, name)  # noqa: PTH118 - thousands of files, every few seconds
            path = os.path.relpath(place, root).replace(os.sep, "/")
            with contextlib.suppress(OSError, ValueError):
                checked_path(path)
                status = os.lstat(place)
                # A link could lead to any file of this user.
                if stat.S_ISREG(status.st_mode):
                    yield EventFile(path=path, place=place, size=status.st_size, inode=status.st_ino)
