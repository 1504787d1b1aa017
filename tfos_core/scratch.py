"""Where a node's process keeps its temporary files: a folder that goes with the node, also when its processes were killed.

TensorFlow alone leaves a file for every function that it converts, when its process is killed. A lock on the folder says that its
supervisor lives: the kernel drops it at the end of that process, and it means the same in every container that shares the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ("Scratch", "sweep_scratch")

_PREFIX = "tfos-tmp-"


class Scratch:
    """The folder of one node, made when its process is about to start."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock = -1

    def make(self, environ: Mapping[str, str]) -> str:
        """Make the folder, for this user only, in `TMPDIR` of `environ` or where Python puts such folders; its path.

        Folders of nodes whose supervisor is gone are removed first.

        Raises:
            OSError: the folder can not be made.
        """
        parent = _parent(environ)
        sweep_scratch(environ)
        while self._path is None:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            self._lock = _locked(path)
            # Somebody who swept in between has taken it for one that was left.
            if path.exists():
                self._path = path
            else:
                self._unlock()
        return str(self._path)

    def remove(self) -> None:
        """Remove the folder with all that is in it; may be called twice."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep_scratch(environ: Mapping[str, str]) -> None:
    """Remove what nodes of this user left whose supervisor was killed. Raises nothing."""
    with contextlib.suppress(OSError):
        for path in sorted(Path(_parent(environ)).glob(f"{_PREFIX}*")):
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.lstat().st_uid != os.getuid():
            return
        lock = _locked(path)
        if lock < 0:
            return
        try:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of a folder; -1 when another process has it, or there are no locks on this file system."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _parent(environ: Mapping[str, str]) -> str:
    wanted = environ.get("TMPDIR")
    # As Python does it: a folder that is not there is passed over.
    return wanted if wanted and Path(wanted).is_dir() else tempfile.gettempdir()
