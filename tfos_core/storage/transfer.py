"""Files and folders from one file system to another, so that a reader sees all of it or nothing."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from pathlib import Path
from typing import BinaryIO

from tfos_core.errors import ConfigError
from tfos_core.storage.interface import Storage
from tfos_core.storage.registry import storage_of

__all__ = ("fetch", "publish", "replace")

_CHUNK_BYTES = 4 << 20


def publish(source: str | Path, target: str) -> str:
    """Copy a file or a folder to `target`, and return that path; what was there is replaced.

    It is written beside the target under a hidden name and then renamed. On HDFS and on local disks a reader therefore never sees a
    part; on object stores, which rename by copying, it can.

    Args:
        source: usually local.
        target: its folder is made.

    Raises:
        ConfigError: there is nothing at `source`.
        OSError: reading or writing failed; nothing is left at the hidden name then, as far as the file system allows.
    """
    return _copy(str(source), target)


def fetch(source: str, target: str | Path) -> str:
    """Copy a file or a folder to a local `target`, and return that path; what was there is replaced, and a part is never seen.

    Raises:
        ConfigError: there is nothing at `source`.
        OSError: reading or writing failed.
    """
    return _copy(source, str(target))


def replace(storage: Storage, source: str, target: str) -> None:
    """Rename `source` to `target`, where something may be: it steps aside first, and comes back when the rename fails."""
    if not storage.exists(target):
        storage.rename(source, target)
        return
    old = _hidden_beside(target, "old")
    storage.rename(target, old)
    try:
        storage.rename(source, target)
    except OSError:
        storage.rename(old, target)
        raise
    storage.remove(old)


def _copy(source: str, target: str) -> str:
    reading, writing = storage_of(source), storage_of(target)
    source, target = reading.absolute(source), writing.absolute(target)
    if not reading.exists(source):
        raise ConfigError(
            f"there is nothing at {source} to copy to {target}", "Check the path, and that this machine can reach it."
        )
    entries = list(reading.files_below(source, hidden=True))
    if not entries:
        raise ConfigError(f"{source} is a folder without files, so there is nothing to copy to {target}")
    for entry in entries:
        # A folder of a disk has no such names, but keys of an object store are any text.
        if entry.below.startswith("/") or ".." in entry.below.split("/"):
            raise ConfigError(
                f"{source} has an entry {entry.below!r}, which would be written outside of {target}", "Remove or rename it."
            )
    temporary = _hidden_beside(target, "tmp")
    try:
        for entry in entries:
            with (
                reading.open_input(entry.path) as file,
                writing.open_output(posixpath.join(temporary, entry.below) if entry.below else temporary) as copy,
            ):
                _pump(file, copy)
        replace(writing, temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            writing.remove(temporary)
        raise
    return target


def _pump(source: BinaryIO, target: BinaryIO) -> None:
    while chunk := source.read(_CHUNK_BYTES):
        target.write(chunk)


def _hidden_beside(path: str, kind: str) -> str:
    return posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.{uuid.uuid4().hex[:12]}.{kind}")
