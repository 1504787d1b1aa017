"""Whether the paths of a job can be read and written from here, tried with a byte."""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Callable, Iterable

from tfos_core.errors import EnvironmentCheckError, TfosError
from tfos_core.paths import has_scheme
from tfos_core.storage import Storage, storage_of

__all__ = ("NO_CLIENT", "NO_FILES", "is_local", "try_reading", "try_writing")

#: Begins the word about a path whose file system Python can not reach here; Spark may, with Java.
NO_CLIENT = "no client: "
#: About a folder that can be read and is empty.
NO_FILES = "no file is there"


def is_local(path: str) -> bool:
    """Whether every machine has a path of its own under this name."""
    return path.startswith("file:") or not has_scheme(path)


def try_reading(paths: Iterable[str]) -> dict[str, str]:
    """Path -> why it can not be read; empty when it can."""
    return {path: _said(_read, path) for path in paths}


def try_writing(paths: Iterable[str]) -> dict[str, str]:
    """Path -> why nothing can be written there, or in the nearest folder above it that exists; empty when it can."""
    return {path: _said(_write, path) for path in paths}


def _said(attempt: Callable[[Storage, str], str], path: str) -> str:
    try:
        storage = storage_of(path)
        return attempt(storage, storage.absolute(path))
    except EnvironmentCheckError as exc:
        return f"{NO_CLIENT}{exc.message}"
    except TfosError as exc:
        return exc.message
    except OSError as exc:
        return exc.strerror or str(exc)


def _read(storage: Storage, path: str) -> str:
    found = storage.expand(path)
    if not found:
        return "nothing is there"
    for place in found:
        for entry in storage.files_below(place):
            with storage.open_input(entry.path) as file:
                file.read(1)
            return ""
    return NO_FILES


def _write(storage: Storage, path: str) -> str:
    folder = path
    while not storage.is_folder(folder):
        if storage.exists(folder):
            return f"{folder} is no folder" if folder != path else ""
        above = posixpath.dirname(folder)
        if above in (folder, ""):
            break
        folder = above
    probe = f"{folder.rstrip('/')}/.tfos-env-check-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        with storage.open_output(probe) as file:
            file.write(b"x")
    except OSError as exc:
        return f"{folder}: {exc.strerror or exc}"
    finally:
        storage.remove(probe)
    return ""
