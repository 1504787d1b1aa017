"""What has a scheme, through fsspec."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from tfos_core.storage.errors import StorageError
from tfos_core.storage.interface import Entry, is_hidden
from tfos_core.storage.patterns import alternatives, has_wildcards

__all__ = ("RemoteStorage",)


class RemoteStorage:
    """A `Storage` around a file system of fsspec; its paths are whole URLs."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def absolute(self, path: str) -> str:
        root = path.partition("://")[0] + "://"
        return path.rstrip("/") if path.rstrip("/") + "//" != root + "/" else path

    def expand(self, path: str) -> tuple[str, ...]:
        if not has_wildcards(path) or self.exists(path):
            return (path,) if self.exists(path) else ()
        found: set[str] = set()
        for each in alternatives(path):
            with _named(each):
                found.update(self._fs.unstrip_protocol(name) for name in self._fs.glob(self._own(each)))
        return tuple(sorted(found))

    def files_below(self, path: str, *, hidden: bool = False) -> Iterator[Entry]:
        own = self._own(path)
        with _named(path):
            self._fs.invalidate_cache()
            found = self._fs.find(own, detail=True)
            # A file is found below itself, and some file systems find nothing where others raise.
            if not found:
                self._fs.info(own)
        root = own.rstrip("/")
        for name, info in sorted(found.items()):
            below = name[len(root) :].lstrip("/")
            if hidden or not is_hidden(below):
                yield Entry(path=posixpath.join(path, below) if below else path, below=below, size=int(info["size"]))

    def exists(self, path: str) -> bool:
        return self._info(path) is not None

    def is_folder(self, path: str) -> bool:
        info = self._info(path)
        return info is not None and info["type"] == "directory"

    def open_input(self, path: str) -> BinaryIO:
        with _named(path):
            return cast("BinaryIO", _File(self._fs.open(self._own(path), "rb"), path))

    def open_output(self, path: str) -> BinaryIO:
        with _named(path):
            self._make_folder_of(path)
            return cast("BinaryIO", _File(self._fs.open(self._own(path), "wb"), path))

    def make_private(self, path: str) -> None:
        own = self._own(path)
        with _named(path):
            self._fs.makedirs(own, exist_ok=True)
            # fsspec has no word for it; the client of HDFS does.
            set_permission = getattr(getattr(self._fs, "client", None), "set_permission", None)
            if set_permission is not None:
                set_permission(own, 0o700)

    def rename(self, source: str, target: str) -> None:
        with _named(target):
            self._make_folder_of(target)
            self._fs.mv(self._own(source), self._own(target), recursive=True)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), _named(path):
            self._fs.rm(self._own(path), recursive=True)

    def _own(self, path: str) -> str:
        """The path as the file system itself has it."""
        return str(self._fs._strip_protocol(path))

    def _info(self, path: str) -> Any:
        # fsspec's own `exists` says no to every failure, and what is thought not to exist is written over.
        try:
            with _named(path):
                self._fs.invalidate_cache()
                return self._fs.info(self._own(path))
        except FileNotFoundError:
            return None

    def _make_folder_of(self, path: str) -> None:
        folder = posixpath.dirname(self._own(path))
        if folder.strip("/"):
            self._fs.makedirs(folder, exist_ok=True)


class _File:
    """A file of fsspec whose errors name it; closing it again is no error."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path
        self.closed = False

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def read(self, size: int = -1, /) -> bytes:
        with _named(self._path):
            return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        with _named(self._path):
            self._file.seek(offset, whence)
            return int(self._file.tell())

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: bytes | memoryview, /) -> int:
        with _named(self._path):
            self._file.write(data)
            return len(data)

    def flush(self) -> None:
        with _named(self._path):
            self._file.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _named(self._path):
                self._file.close()


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of file systems say little, or too much, such as the stack of a NameNode."""
    try:
        yield
    except StorageError:
        raise
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as exc:
        raise type(exc)(f"{path}: {_first_line(exc)}") from exc
    except Exception as exc:
        raise StorageError(
            f"{path}: {_first_line(exc)}", "Is the file system up, and can this machine and this user reach it?"
        ) from exc


def _first_line(exc: Exception) -> str:
    text = str(exc).replace("\\n", "\n").replace("\\t", "\t")
    return f"{type(exc).__name__}: {text.strip().partition(chr(10))[0]}".rstrip(": ")
