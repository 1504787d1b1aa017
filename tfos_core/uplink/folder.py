"""The folder of a record on a file system that the driver and the submitting machine both reach: small files, put there whole."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from typing import Protocol

from tfos_core.storage import Storage, storage_of
from tfos_core.storage.transfer import replace

__all__ = ("RecordFolder", "StorageFolder", "hidden_name")


class RecordFolder(Protocol):
    """All methods raise OSError when the file system does not do what it is asked for."""

    @property
    def url(self) -> str:
        """Where it is, for people."""

    def make(self) -> None:
        """Make it, for its owner only; it may be there already."""

    def put(self, name: str, data: bytes) -> None:
        """A file, whole or not at all; one of that name is replaced."""

    def get(self, name: str) -> bytes | None:
        """What is in a file; None when there is none."""

    def names(self) -> list[str]:
        """All files of it, sorted; none when the folder is not there."""


def hidden_name(name: str) -> str:
    """A name beside a file, which `names` leaves out."""
    return f".{name}.{uuid.uuid4().hex[:12]}.tmp"


class StorageFolder:
    """A `RecordFolder` through the storage layer: of the submitting machine, and of a driver that has the same disk."""

    def __init__(self, url: str, storage: Storage | None = None) -> None:
        self._storage = storage_of(url) if storage is None else storage
        self._path = self._storage.absolute(url)

    @property
    def url(self) -> str:
        return self._path

    def make(self) -> None:
        self._storage.make_private(self._path)

    def put(self, name: str, data: bytes) -> None:
        temporary = self._below(hidden_name(name))
        try:
            with self._storage.open_output(temporary) as file:
                file.write(data)
            replace(self._storage, temporary, self._below(name))
        except BaseException:
            with contextlib.suppress(OSError):
                self._storage.remove(temporary)
            raise

    def get(self, name: str) -> bytes | None:
        try:
            with self._storage.open_input(self._below(name)) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        try:
            return sorted(entry.below for entry in self._storage.files_below(self._path) if entry.below)
        except FileNotFoundError:
            return []

    def _below(self, name: str) -> str:
        return posixpath.join(self._path, name)
