"""Disks that are full in no time (Linux, root)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ("filled", "small_disk", "why_no_small_disk")


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """`folder` as a file system of its own of that size."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tfos-test", str(folder))
    try:
        yield folder
    finally:
        # Lazily: what still has a file open there must not keep it.
        _run("umount", "-l", str(folder))


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No byte is free on the disk of `folder`."""
    path = folder / "filler"
    with path.open("wb") as file:
        free = os.fstatvfs(file.fileno())
        with contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
        with contextlib.suppress(OSError):
            while True:
                os.write(file.fileno(), b"x" * 4096)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def why_no_small_disk() -> str | None:
    """Why nothing can be mounted here, or None when it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    try:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "disk", 1):
            return None
    except (AssertionError, OSError) as exc:
        return f"mounting is not permitted: {exc}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
