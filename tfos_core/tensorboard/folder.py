"""The folder on the driver that collected event files are written to. What nodes say about paths is not trusted."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

__all__ = ("EventFileFolder", "checked_path", "is_event_file")

_LONGEST_PATH = 1024
_LONGEST_NAME_BYTES = 255
_DEEPEST = 32
_NODE = re.compile(r"[a-z]+:[0-9]+")


def is_event_file(name: str) -> bool:
    """Whether TensorBoard would read a file of this name (it takes every name with `tfevents` in it)."""
    return "tfevents" in name


def checked_path(path: object) -> PurePosixPath:
    """A relative path to an event file that stays below whatever it is put below.

    Raises:
        ValueError: it does not, or no event file has such a name.
    """
    if not isinstance(path, str) or not 0 < len(path) <= _LONGEST_PATH or not path.isprintable():
        raise ValueError(f"{path!r:.100} is not a path that an event file may have")
    parts = path.split("/")
    if any(part in ("", ".", "..") or len(part.encode()) > _LONGEST_NAME_BYTES for part in parts) or len(parts) > _DEEPEST:
        raise ValueError(f"{path!r:.100} does not stay below the folder of its node")
    if not is_event_file(parts[-1]):
        raise ValueError(f"{path!r:.100} is not the name of an event file")
    return PurePosixPath(*parts)


class EventFileFolder:
    """A `FileSink` that writes to `ROOT/<role>-<index>/<path>`; nothing is created before the first file comes.

    Args:
        root: made when it is missing, for this user only.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, node: str, path: str, offset: int, data: bytes) -> None:
        """Write a piece of a file at its place; an offset of 0 begins the file anew.

        Raises:
            ValueError: the path leaves the folder, or the piece does not fit to what came before.
            OSError: it can not be written.
        """
        if not _NODE.fullmatch(node):
            raise ValueError(f"{node!r:.40} is not the name of a node, as in worker:0")
        target = self._root / node.replace(":", "-") / checked_path(path)
        self._make_folders(target.parent)
        # O_NOFOLLOW and the check above: on one machine a node could have put a link there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if offset else os.O_TRUNC)
        fd = os.open(target, flags, 0o600)
        try:
            if offset > os.fstat(fd).st_size:
                raise ValueError(f"a piece of {path!r:.100} at {offset} would leave a hole in the file")
            _write_all(fd, data, offset)
        finally:
            os.close(fd)

    def _make_folders(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(self._root.resolve()):
            raise ValueError(f"{folder} leads out of {self._root}")


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
