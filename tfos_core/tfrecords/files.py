"""The seam to storage: all that TFRecords need of a file system. Local files are here; others come in through `storage_of`."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from tfos_core.paths import local_path

__all__ = ("Entry", "LocalStorage", "Storage", "storage_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file: its path, its path below the folder that was listed, and its size in bytes."""

    path: str
    below: str
    size: int


class Storage(Protocol):
    """A file system; every path is one that `absolute` gave, or one below it. All methods raise OSError."""

    def absolute(self, path: str) -> str:
        """The path as it means the same on every machine."""

    def expand(self, path: str) -> tuple[str, ...]:
        """The paths that match when `path` has wildcards, else the path itself; only what exists."""

    def files_below(self, path: str) -> Iterator[Entry]:
        """All files at or below a path, hidden ones (`_name`, `.name`) and those in hidden folders not."""

    def exists(self, path: str) -> bool: ...

    def open_input(self, path: str) -> BinaryIO: ...

    def open_output(self, path: str) -> BinaryIO:
        """A new file; its folder is made."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or a folder in one step; the folder of `target` is made, `target` itself does not exist."""

    def remove(self, path: str) -> None:
        """A file or a folder with everything in it; nothing when it does not exist."""


def storage_of(path: str) -> Storage:
    """The file system of a path.

    Raises:
        ConfigError: there is none for its scheme.
    """
    local_path(path)
    return LocalStorage()


class LocalStorage:
    """Plain paths and file: URIs."""

    def absolute(self, path: str) -> str:
        return str(Path(local_path(path)).absolute())

    def expand(self, path: str) -> tuple[str, ...]:
        if glob.has_magic(path) and not Path(path).exists():
            return tuple(sorted(glob.glob(path)))  # noqa: PTH207 - a pattern from the root, which Path.glob does not take
        return (path,) if Path(path).exists() else ()

    def files_below(self, path: str) -> Iterator[Entry]:
        root = Path(path)
        if root.is_file():
            yield Entry(path=path, below="", size=root.stat().st_size)
            return
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name[0] not in "._")
            for name in sorted(names):
                if name[0] not in "._":
                    file = Path(folder) / name
                    yield Entry(path=str(file), below=str(file.relative_to(root)), size=file.stat().st_size)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def open_input(self, path: str) -> BinaryIO:
        return Path(path).open("rb")

    def open_output(self, path: str) -> BinaryIO:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("wb")

    def rename(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)

    def remove(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
