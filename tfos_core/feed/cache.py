"""What a node keeps of the blocks that it consumed, for later epochs: in memory first, then in a file without a name.

Whatever kills the process takes the file with it, because nothing but its descriptor leads there. Blocks are kept as they arrived;
pickled numbers as arrays (`numbers`), because that is what makes a later epoch fast. Only rows that were consumed here are kept:
when another attempt takes a partition over, each node has its part.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfos_core.errors import FeedError
from tfos_core.feed.blocks import Block, ColumnsBlock, RowsBlock, decode, decode_plain
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.numbers import Form, NumbersBlock, compact, to_numbers
from tfos_core.feed.pickled import pickled_numbers
from tfos_core.feed.wire import Kind

__all__ = ("BlockCache", "Kept", "local_folder")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an array is in the file."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Rows `start` up to `stop` of a block: a payload as it arrived, or with `form` the arrays of its columns."""

    kind: Kind
    arrays: tuple[Array, ...]
    size: int
    schema: Any = None
    form: Form | None = None
    places: tuple[_Place, ...] = ()
    start: int = 0
    stop: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self.arrays)


def local_folder(environ: Mapping[str, str]) -> Path:
    """The executor's local folder: the first that Spark gave it, or where the process works."""
    folders = (Path(name) for name in environ.get("SPARK_LOCAL_DIRS", "").split(",") if name)
    return next((folder for folder in folders if os.access(folder, os.W_OK)), Path.cwd())


class BlockCache:
    """One per hub. `begin` starts to keep what one epoch brings; `order` is what a later one replays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._seq = -1
        self._limits = NodeCache()
        self._kept: list[Kept] = []
        self._rows = 0
        self._in_memory = 0
        self._on_disk = 0
        self._file: int | None = None
        self._problem: str | None = None
        self._closed = False

    def begin(self, seq: int, limits: NodeCache) -> None:
        """Keep the rows of epoch `seq`, and forget others; again for the same epoch is no error."""
        with self._lock:
            if seq > self._seq and not self._closed:
                self._forget()
                self._seq, self._limits = seq, limits

    def opened(self, kind: Kind, payload: Any, schema: Any) -> tuple[Kept | None, Block]:
        """A block that has arrived: what will be kept of it, and its rows.

        Raises:
            FeedError: as `blocks.decode`.
        """
        if self._problem is not None:
            return None, decode(kind, payload, schema)
        numbers = pickled_numbers(payload) if kind is Kind.RAW_PICKLE else None
        if numbers is not None:
            numbers = compact(numbers)
            return Kept(kind=kind, arrays=numbers.arrays, size=len(numbers), form=numbers.form), numbers
        block, is_plain = decode_plain(kind, payload, schema)
        if isinstance(block, RowsBlock) and is_plain and (numbers := to_numbers(block.values)) is not None:
            return Kept(kind=kind, arrays=numbers.arrays, size=len(numbers), form=numbers.form), numbers
        # Arrays in rows are views into what was pickled beside them, and the program may change them.
        kept = payload.copy() if kind is Kind.PICKLE else payload
        return Kept(kind=kind, arrays=(kept,), size=len(block), schema=schema), _guarded(block)

    def add(self, kept: Kept, start: int, stop: int) -> None:
        """Rows of a block were consumed. When they do not fit, everything is forgotten: a part of an epoch helps nobody."""
        if stop <= start:
            return
        with self._lock:
            if self._closed or self._problem is not None:
                return
            self._rows += stop - start
            if self._in_memory + kept.nbytes <= self._limits.memory_bytes:
                self._in_memory += kept.nbytes
                self._kept.append(replace(kept, start=start, stop=stop))
                return
            try:
                self._kept.append(self._written(replace(kept, start=start, stop=stop)))
            except OSError as exc:
                self._give_up(f"{self._folder} can not be written: {exc.strerror or exc}")
            except _FullError:
                memory, disk = self._limits.memory_bytes >> 20, self._limits.disk_bytes >> 20
                self._give_up(f"rows need more than {memory} MiB of memory and {disk} MiB on disk")

    def status(self, seq: int) -> dict[str, Any]:
        """What is kept of an epoch, for the driver: `problem` says why it is not all that was consumed."""
        with self._lock:
            if seq != self._seq:
                # No partition came here.
                return {"rows": 0, "problem": None, "memory_bytes": 0, "disk_bytes": 0}
            sizes = {"memory_bytes": self._in_memory, "disk_bytes": self._on_disk}
            return {"rows": self._rows, "problem": self._problem, **sizes}

    def order(self, seq: int, shuffled: str | None) -> Sequence[Kept]:
        """What was kept of epoch `seq`, in the order of its arrival, or shuffled by a seed."""
        with self._lock:
            kept = list(self._kept) if seq == self._seq else []
        if shuffled is not None:
            random.Random(shuffled).shuffle(kept)  # noqa: S311 - no secret
        return kept

    def open(self, kept: Kept) -> Block | None:
        """The rows of a kept block; None when the cache was closed meanwhile.

        Raises:
            FeedError: the file can not be read.
        """
        arrays, is_own = kept.arrays, False
        if kept.places:
            with self._lock:
                if self._file is None:
                    return None
                try:
                    arrays, is_own = tuple(_read(self._file, place) for place in kept.places), True
                except OSError as exc:
                    raise FeedError(
                        f"rows that were kept in {self._folder} can not be read: {exc}",
                        "Set data.cache: none, or data.cache_disk: null.",
                    ) from exc
        if kept.form is not None:
            return NumbersBlock(kept.form, arrays, kept.size)
        payload = arrays[0]
        if kept.kind is Kind.PICKLE and not is_own:
            payload = payload.copy()
        block = decode(kept.kind, payload, kept.schema)
        return block if is_own else _guarded(block)

    def forget(self) -> None:
        """Keep nothing; give memory and disk back."""
        with self._lock:
            self._forget()
            self._seq = -1

    def close(self) -> None:
        """Forget everything for good; idempotent."""
        with self._lock:
            self._closed = True
            self._forget()

    def _forget(self) -> None:
        self._kept = []
        self._rows = self._in_memory = self._on_disk = 0
        self._problem = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _give_up(self, problem: str) -> None:
        self._forget()
        self._problem = problem

    def _written(self, kept: Kept) -> Kept:
        if self._on_disk + kept.nbytes > self._limits.disk_bytes:
            raise _FullError
        if self._file is None:
            self._file = _unnamed_file(self._folder)
        places = []
        for array in kept.arrays:
            flat = np.ascontiguousarray(array)
            _write(self._file, _bytes_of(flat), self._on_disk)
            places.append(_Place(offset=self._on_disk, dtype=flat.dtype.str, shape=flat.shape))
            self._on_disk += flat.nbytes
        return replace(kept, arrays=(), places=tuple(places))


class _FullError(Exception):
    """The limit on disk is reached."""


def _guarded(block: Block) -> Block:
    """What the program gets of a payload that stays here: nothing that it could change there. Arrays of Arrow are read-only."""
    if isinstance(block, ColumnsBlock):
        block.is_kept = True
    return block


def _unnamed_file(folder: Path) -> int:
    """A file of this user that nobody else can open, and that is gone with its descriptor."""
    flags = os.O_RDWR | os.O_CLOEXEC
    with contextlib.suppress(OSError, AttributeError):
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    # File systems without unnamed files: there is a name for a moment, in a folder that only this user can enter.
    private = Path(tempfile.mkdtemp(prefix="tfos-cache-", dir=folder))
    try:
        return os.open(private / "blocks", flags | os.O_CREAT | os.O_EXCL, 0o600)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _bytes_of(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read(descriptor: int, place: _Place) -> Array:
    array = np.empty(place.shape, place.dtype)
    view = _bytes_of(array)
    offset = place.offset
    while view:
        count = os.preadv(descriptor, [view], offset)
        if not count:
            raise OSError("the file of the cache ended")
        view, offset = view[count:], offset + count
    return array
