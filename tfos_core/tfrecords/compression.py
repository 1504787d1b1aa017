"""gzip and zlib streams, recognised by what they start with."""

from __future__ import annotations

import struct
import zlib
from enum import StrEnum
from typing import BinaryIO, Protocol

import numpy as np

from tfos_core.tfrecords.crc32c import masked_crc32c

__all__ = ("Compression", "DamagedStreamError", "InputStream", "OutputStream", "open_compressed", "recognise", "write_compressed")

_CHUNK_BYTES = 1 << 20
#: zlib's window argument for each format; 47 recognises both when reading.
_WINDOWS = {"gzip": 31, "zlib": 15}
_ANY_WINDOW = 47


class Compression(StrEnum):
    """How a whole file is compressed; the names are those of the `compression` option, TensorFlow's are GZIP and ZLIB."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"

    @property
    def suffix(self) -> str:
        """What names of such files end with, after `.tfrecord`."""
        return {Compression.NONE: "", Compression.GZIP: ".gz", Compression.ZLIB: ".zlib"}[self]


class DamagedStreamError(ValueError):
    """Compressed data is damaged or cut off."""


class InputStream(Protocol):
    """Bytes to read; fewer than asked for do not mean the end, none do."""

    def read(self, size: int, /) -> bytes: ...


class OutputStream(Protocol):
    """Takes bytes; `finish` writes what is still held back, and does not close the file."""

    def write(self, data: bytes | memoryview, /) -> None: ...

    def finish(self) -> None: ...


def open_compressed(file: BinaryIO, compression: Compression | None) -> InputStream:
    """The content of `file` without its compression; None looks at how it starts."""
    start = file.read(12)
    if compression is None:
        compression = recognise(start)
    return _Plain(start, file) if compression is Compression.NONE else _Inflating(start, file)


def write_compressed(file: BinaryIO, compression: Compression, level: int = -1) -> OutputStream:
    """A stream that compresses into `file`; `level` is zlib's, -1 its default."""
    if compression is Compression.NONE:
        return _Plain(b"", file)
    return _Deflating(file, zlib.compressobj(level, wbits=_WINDOWS[compression.value]))


def recognise(start: bytes) -> Compression:
    """How a file is compressed whose first 12 bytes (or all, if it has fewer) are these."""
    if len(start) == 12:
        header = np.frombuffer(start, dtype=np.uint8)
        expected = struct.unpack_from("<I", start, 8)[0]
        if int(masked_crc32c(header, np.zeros(1, np.int64), np.array([8]))[0]) == expected:
            return Compression.NONE
    if start[:2] == b"\x1f\x8b":
        return Compression.GZIP
    if len(start) > 1 and start[0] & 0x0F == 8 and start[0] >> 4 <= 7 and (start[0] << 8 | start[1]) % 31 == 0:
        return Compression.ZLIB
    return Compression.NONE


class _Plain:
    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._start = start
        self._file = file

    def read(self, size: int, /) -> bytes:
        if self._start:
            start, self._start = self._start, b""
            return start + self._file.read(max(0, size - len(start)))
        return self._file.read(size)

    def write(self, data: bytes | memoryview, /) -> None:
        self._file.write(data)

    def finish(self) -> None:
        return


class _Deflating:
    def __init__(self, file: BinaryIO, compressor: zlib._Compress) -> None:
        self._file = file
        self._compressor = compressor

    def write(self, data: bytes | memoryview, /) -> None:
        self._file.write(self._compressor.compress(data))

    def finish(self) -> None:
        self._file.write(self._compressor.flush())


class _Inflating:
    """Several gzip members one after the other are one stream."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._input = start
        self._file = file
        self._inflate = zlib.decompressobj(wbits=_ANY_WINDOW)
        self._failed: DamagedStreamError | None = None

    def read(self, size: int, /) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing > 0 and self._failed is None:
            part = self._step(missing)
            if part is None:
                break
            parts.append(part)
            missing -= len(part)
        # What came before the damage is given out first.
        if self._failed is not None and missing == size:
            raise self._failed
        return b"".join(parts)

    def _step(self, size: int) -> bytes | None:
        """Some more bytes, perhaps none; None at the end."""
        if not self._input:
            self._input = self._file.read(_CHUNK_BYTES)
        if not self._input:
            if not self._inflate.eof:
                self._failed = DamagedStreamError("the file ends inside the compressed data")
            return None
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(wbits=_ANY_WINDOW)
        try:
            part = self._inflate.decompress(self._input, size)
        except zlib.error as exc:
            self._failed = DamagedStreamError(f"the compressed data is damaged ({exc})")
            return b""
        self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return part
