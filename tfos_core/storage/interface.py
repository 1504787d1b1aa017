"""All that tfos needs of a file system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

__all__ = ("Entry", "Storage", "is_hidden")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file: its path, its path below the folder that was listed, and its size in bytes."""

    path: str
    below: str
    size: int


class Storage(Protocol):
    """A file system; every path is one that `absolute` gave, or one below it. All methods raise OSError."""

    def absolute(self, path: str) -> str:
        """The path as it means the same on every machine, without a slash at its end."""

    def expand(self, path: str) -> tuple[str, ...]:
        """The paths that match when `path` has wildcards (`*`, `?`, `[ab]`, `{a,b}`), else the path itself; only what exists."""

    def files_below(self, path: str, *, hidden: bool = False) -> Iterator[Entry]:
        """All files at or below a path in the order of their names.

        Args:
            hidden: with those named `_name` or `.name` and those in such folders.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder; a file system that does not answer is an error, not a no."""

    def is_folder(self, path: str) -> bool: ...

    def open_input(self, path: str) -> BinaryIO: ...

    def open_output(self, path: str) -> BinaryIO:
        """A new file; its folder is made. What it holds is there once it is closed."""

    def make_private(self, path: str) -> None:
        """A folder that, as far as the file system can say so, only its owner may enter; it may be there already."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or a folder, in one step where the file system can; `target` does not exist, its folder is made."""

    def remove(self, path: str) -> None:
        """A file or a folder with everything in it; nothing when it does not exist."""


def is_hidden(below: str) -> bool:
    """Whether a file, given by its path below a folder, is one that readers of data leave out, as in Hadoop."""
    return any(name[:1] in ("_", ".") for name in below.split("/"))
