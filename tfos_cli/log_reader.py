"""Reads the logs of a run as they grow: whole lines, in the order in which they are found, across a rotation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tfos_cli.runs import Run
from tfos_core.errors import ConfigError
from tfos_core.shim.record import node_log_name

__all__ = ("DRIVER", "LogFile", "log_files", "read_new")

#: What `--node` calls the output of spark-submit and of the driver.
DRIVER = "driver"

_CHUNK_BYTES = 256 * 1024


class LogFile:
    """One growing file; remembers how far it has been read."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""
        self._before: Path | None = path.with_name(f"{path.name}.1")

    def lines(self) -> Iterator[str]:
        """The whole lines that have come since the last call."""
        yield from self._read_rotated()
        while True:
            if self._descriptor is None and not self._open(self._path):
                return
            yield from self._read_open()
            if not self._was_replaced():
                return
            self.close()

    def rest(self) -> str | None:
        """What stands behind the last line end; for the end of a run whose last line has none."""
        text, self._rest = self._rest, b""
        return text.decode("utf-8", "replace") if text else None

    def close(self) -> None:
        """Close the file; reading again goes on with a new one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read_rotated(self) -> Iterator[str]:
        """What was renamed before the first look comes first."""
        before, self._before = self._before, None
        if before is not None and self._open(before):
            yield from self._read_open()
            self.close()

    def _read_open(self) -> Iterator[str]:
        while self._descriptor is not None and (data := os.read(self._descriptor, _CHUNK_BYTES)):
            *whole, self._rest = (self._rest + data).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")

    def _open(self, path: Path) -> bool:
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        return True

    def _was_replaced(self) -> bool:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return self._descriptor is not None and now.st_ino != os.fstat(self._descriptor).st_ino


def log_files(run: Run, node: str | None) -> Callable[[], list[LogFile]]:
    """A function that gives the logs to read: that of one node, or those of all that have printed so far.

    Raises:
        ConfigError: `node` is no name of a node.
    """
    if node == DRIVER:
        return _Fixed([LogFile(DRIVER, run.driver_log)])
    if node is not None:
        try:
            return _Fixed([LogFile(node, run.nodes_folder / node_log_name(node))])
        except ValueError as exc:
            raise ConfigError(f"--node: {exc}", f"Name one as 'tfos status {run.id}' shows it, or '{DRIVER}'.") from None
    return _Growing(run.nodes_folder)


def read_new(files: list[LogFile], show: Callable[[str, str], None]) -> bool:
    """Show (name, line) for what is new in all files; whether there was anything."""
    found = False
    for file in files:
        for line in file.lines():
            found = True
            show(file.name, line)
    return found


class _Fixed:
    def __init__(self, files: list[LogFile]) -> None:
        self._files = files

    def __call__(self) -> list[LogFile]:
        return self._files


class _Growing:
    """All nodes of a folder, new ones as they appear."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, LogFile] = {}

    def __call__(self) -> list[LogFile]:
        names = sorted(path.name for path in self._folder.glob("*.log")) if self._folder.is_dir() else []
        for name in names:
            role, _, index = name.removesuffix(".log").rpartition("-")
            if name not in self._files and role and index.isdigit():
                self._files[name] = LogFile(f"{role}:{index}", self._folder / name)
        return list(self._files.values())
