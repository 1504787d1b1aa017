"""Plain paths and file: URIs."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tfos_core.paths import local_path
from tfos_core.storage.interface import Entry, is_hidden
from tfos_core.storage.patterns import alternatives, has_wildcards

__all__ = ("LocalStorage",)


class LocalStorage:
    """A `Storage` of this machine."""

    def absolute(self, path: str) -> str:
        return str(Path(local_path(path)).absolute())

    def expand(self, path: str) -> tuple[str, ...]:
        if has_wildcards(path) and not Path(path).exists():
            # A pattern from the root is nothing that Path.glob takes.
            return tuple(sorted({found for each in alternatives(path) for found in glob.glob(each)}))  # noqa: PTH207
        return (path,) if Path(path).exists() else ()

    def files_below(self, path: str, *, hidden: bool = False) -> Iterator[Entry]:
        root = Path(path)
        if root.is_file():
            yield Entry(path=path, below="", size=root.stat().st_size)
            return
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if hidden or not is_hidden(name))
            for name in sorted(names):
                if hidden or not is_hidden(name):
                    file = Path(folder) / name
                    yield Entry(path=str(file), below=str(file.relative_to(root)), size=file.stat().st_size)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_folder(self, path: str) -> bool:
        return Path(path).is_dir()

    def open_input(self, path: str) -> BinaryIO:
        return Path(path).open("rb")

    def open_output(self, path: str) -> BinaryIO:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("wb")

    def make_private(self, path: str) -> None:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(path).chmod(0o700)

    def rename(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)

    def remove(self, path: str) -> None:
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)
