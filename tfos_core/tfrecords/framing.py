"""Files as blocks of framed records: splits them, and checks every checksum.

A frame is TensorFlow's: length (8 bytes, little-endian), masked CRC-32C of it (4), the record, masked CRC-32C of the record (4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tfos_core.tfrecords.compression import DamagedStreamError
from tfos_core.tfrecords.crc32c import LANE_BYTES, masked_crc32c
from tfos_core.tfrecords.encode import FOOTER_BYTES, HEADER_BYTES
from tfos_core.tfrecords.ranges import Bytes, Ints, unaligned

__all__ = ("TAIL_BYTES", "Block", "Problem", "Source", "find_frame", "read_blocks", "split")

#: Bytes that may be read behind the last record of a block; they belong to no record.
TAIL_BYTES = 16
_AROUND = HEADER_BYTES + FOOTER_BYTES
_LENGTH = struct.Struct("<Q")
_SCALAR_STEPS = 512


class Source(Protocol):
    """A stream of bytes; `read` may give fewer than asked for, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A record that can not be used: where in the file (before compression) its frame starts, and why."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Checked records: ranges of `buffer`; `base` is the file offset of the buffer's first byte (it may be negative)."""

    buffer: Bytes
    starts: Ints
    sizes: Ints
    base: int
    problems: tuple[Problem, ...] = field(default=())

    def offset_of(self, record: int) -> int:
        """Where the frame of this record starts in the file."""
        return self.base + int(self.starts[record]) - HEADER_BYTES


def read_blocks(source: Source, *, block_bytes: int = 8 << 20, start: int = 0, stop: int | None = None) -> Iterator[Block]:
    """The records of a file in blocks of about `block_bytes`.

    Records with a wrong checksum are left out and named in `problems`. Behind a damaged length nothing can be found any more: that
    is one problem, and the end of the file.

    Args:
        start: where in the file `source` stands: at a frame.
        stop: frames that start there or later are not read. None reads to the end.
    """
    rest, offset, wanted = b"", start, block_bytes
    front = bytes(LANE_BYTES)
    while True:
        chunk, damaged = _read(source, wanted)
        data = b"".join((front, rest, chunk, bytes(TAIL_BYTES)))
        buffer = np.frombuffer(data, dtype=np.uint8)
        end = len(data) - TAIL_BYTES
        starts, sizes, position, needed = split(buffer, LANE_BYTES, end)
        if stop is not None and offset + position - LANE_BYTES >= stop:
            kept = int(np.searchsorted(starts, stop - offset + LANE_BYTES + HEADER_BYTES))
            block = _checked(buffer, starts[:kept], sizes[:kept], base=offset - LANE_BYTES, end=position, damaged="")
            if len(block.starts) or block.problems:
                yield block
            return
        if needed < 0:
            damaged = "the checksum of its length is wrong"
        elif not chunk and position < end and not damaged:
            damaged = "the file ends inside this record"
        block = _checked(buffer, starts, sizes, base=offset - LANE_BYTES, end=position, damaged=damaged)
        if len(block.starts) or block.problems:
            yield block
        if damaged or not chunk:
            return
        rest = data[position:end]
        offset += position - LANE_BYTES
        wanted = max(block_bytes, needed)


def find_frame(source: Source, at_least: int, *, block_bytes: int = 8 << 20) -> int | Problem:
    """Where the first frame starts that does not start before `at_least`, or the end of the file; what lies before is not checked.

    Records say how long they are, so finding one takes reading the file from its start; `source` stands there. The answer is the
    problem when a damaged length bars the way.
    """
    rest, offset, wanted = b"", 0, block_bytes
    while True:
        chunk = source.read(wanted)
        data = b"".join((rest, chunk, bytes(TAIL_BYTES)))
        end = len(data) - TAIL_BYTES
        starts, _, position, needed = split(np.frombuffer(data, dtype=np.uint8), 0, end)
        if offset + position >= at_least:
            number = int(np.searchsorted(starts, at_least - offset + HEADER_BYTES))
            return offset + (int(starts[number]) - HEADER_BYTES if number < len(starts) else position)
        if needed < 0:
            return Problem(offset=offset + position, reason="the checksum of its length is wrong")
        if not chunk:
            return offset + end
        rest = data[position:end]
        offset += position
        wanted = max(block_bytes, needed)


def _read(source: Source, size: int) -> tuple[bytes, str]:
    try:
        return source.read(size), ""
    except DamagedStreamError as exc:
        return b"", str(exc)


def split(buffer: Bytes, position: int, end: int) -> tuple[Ints, Ints, int, int]:
    """Where the records between `position` and `end` are: starts, sizes, the end of the last whole frame, and how many bytes the
    next one lacks, -1 when its length is damaged. Checksums of lengths are checked, those of records are not.
    """
    parts: list[Ints] = []
    needed = 0
    while position < end:
        run = _equal_run(buffer, position, end)
        if run is None:
            run, needed = _walk(buffer, position, end)
        good = _good_headers(buffer, run)
        if good < len(run):
            parts.append(run[:good])
            position, needed = int(run[good]), -1
            break
        parts.append(run)
        if len(run):
            position = int(run[-1]) + _AROUND + int(unaligned(buffer, "<u8")[run[-1]])
        if needed or len(run) == 0:
            break
    frames = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    sizes = unaligned(buffer, "<u8")[frames].astype(np.int64)
    return frames + HEADER_BYTES, sizes, position, needed


def _equal_run(buffer: Bytes, position: int, end: int) -> Ints | None:
    """Frames of the same size from here on, when there are many."""
    if end - position < HEADER_BYTES:
        return None
    stride = _length_at(buffer, position) + _AROUND
    most = (end - position) // stride
    if most < 2 * _SCALAR_STEPS or len(_unequal(buffer, position, stride, _SCALAR_STEPS)):
        return None
    other = _unequal(buffer, position, stride, most)
    count = int(other[0]) if len(other) else most
    return position + np.arange(count, dtype=np.int64) * stride


def _unequal(buffer: Bytes, position: int, stride: int, count: int) -> NDArray[np.intp]:
    """Which of `count` lengths, `stride` bytes apart, are not the first one."""
    lengths: NDArray[np.uint64] = np.ndarray((count,), dtype="<u8", buffer=buffer.data, offset=position, strides=(stride,))
    return np.flatnonzero(lengths != lengths[0])


def _length_at(buffer: Bytes, position: int) -> int:
    length: int = _LENGTH.unpack_from(buffer.data, position)[0]
    return length


def _walk(buffer: Bytes, position: int, end: int) -> tuple[Ints, int]:
    """Some frames from here on, one after the other, and how many bytes the next one lacks (0: it is there)."""
    frames: list[int] = []
    data, length_at, append = buffer.data, _LENGTH.unpack_from, frames.append
    last_header = end - HEADER_BYTES
    for _ in range(16 * _SCALAR_STEPS):
        if position > last_header:
            return np.array(frames, dtype=np.int64), _AROUND if position < end else 0
        following = position + length_at(data, position)[0] + _AROUND
        if following > end:
            trusted = _good_headers(buffer, np.array([position])) == 1
            return np.array(frames, dtype=np.int64), following - end if trusted else -1
        append(position)
        position = following
    return np.array(frames, dtype=np.int64), 0


def _good_headers(buffer: Bytes, frames: Ints) -> int:
    """How many of these frames, from the first on, have a right checksum of their length."""
    expected = unaligned(buffer, "<u4")[frames + 8]
    wrong = np.flatnonzero(masked_crc32c(buffer, frames, np.full(len(frames), 8)) != expected)
    return int(wrong[0]) if len(wrong) else len(frames)


def _checked(buffer: Bytes, starts: Ints, sizes: Ints, *, base: int, end: int, damaged: str) -> Block:
    expected = unaligned(buffer, "<u4")[starts + sizes]
    good = masked_crc32c(buffer, starts, sizes) == expected
    problems: list[Problem] = []
    if not good.all():
        wrong = starts[~good] - HEADER_BYTES + base
        problems = [Problem(offset=int(offset), reason="the checksum of its content is wrong") for offset in wrong]
        starts, sizes = starts[good], sizes[good]
    if damaged:
        problems.append(Problem(offset=base + end, reason=damaged))
    return Block(buffer=buffer, starts=starts, sizes=sizes, base=base, problems=tuple(problems))
