"""Writes a virtual environment into a `.tar.gz` that works wherever it is unpacked, with all cores."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from tfos_cli.submit.venv_files import Entry, VirtualEnvironment

__all__ = ("write_archive",)

_BLOCK = 4 << 20
_GZIP = 16 + zlib.MAX_WBITS
_SHEBANG = re.compile(rb"#!\s*(?P<program>/[^\n\r]*)\r?\n(?:'''exec' (?P<quoted>[^\n\r]*)\r?\n' '''\r?\n)?")


def write_archive(venv: VirtualEnvironment, target: Path, *, level: int) -> None:
    """Write the archive of an environment.

    Args:
        level: of gzip, 0 (only stored) to 9.

    Raises:
        OSError: a file vanished meanwhile, or the disk is full.
    """
    with (
        target.open("wb") as file,
        _ParallelGzip(file, level) as packed,
        tarfile.open(fileobj=cast("IO[bytes]", packed), mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK) as archive,
    ):
        for entry in venv.entries:
            _add(archive, entry, venv.prefix)


def _add(archive: tarfile.TarFile, entry: Entry, prefix: Path) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode = entry.mode
    # The time in whole seconds: byte code names the time of its source.
    info.mtime = entry.modified_ns // 1_000_000_000
    if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(info)
        return
    if entry.is_script:
        data = _movable(entry.source.read_bytes(), prefix)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
        return
    with entry.source.open("rb") as stream:
        info.size = os.fstat(stream.fileno()).st_size
        archive.addfile(info, stream)


def _movable(script: bytes, prefix: Path) -> bytes:
    """A script whose first line named this environment's Python, so that it finds the one beside itself."""
    match = _SHEBANG.match(script)
    if match is None:
        return script
    program = (match["quoted"] or match["program"]).strip(b"\"'")
    if not program.startswith(os.fsencode(prefix / "bin")):
        return script
    head = b'#!/bin/sh\n\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"\n\' \'\'\'\n'
    return head + script[match.end() :]


class _ParallelGzip:
    """A gzip file of many members, which every reader takes for one; blocks are compressed beside one another, in order."""

    def __init__(self, file: IO[bytes], level: int) -> None:
        self._file = file
        self._level = level
        workers = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="tfos-pack")
        self._most = 2 * workers
        self._pending: deque[Future[bytes]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            while self._pending and error is None:
                self._file.write(self._pending.popleft().result())
        finally:
            self._pool.shutdown(cancel_futures=True)

    def write(self, data: bytes) -> int:
        """Take one block; waits when compression is behind."""
        self._pending.append(self._pool.submit(_compress, bytes(data), self._level))
        while len(self._pending) > self._most:
            self._file.write(self._pending.popleft().result())
        return len(data)


def _compress(block: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return packer.compress(block) + packer.flush()
