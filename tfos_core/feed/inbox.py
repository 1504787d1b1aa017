"""The blocks that a node has received and not consumed yet, and the ends of epochs between them.

Connection threads put, one consumer takes. Blocks are decoded by the consumer, outside the lock, one at a time: what waits is
bytes, so memory follows the byte budget.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tfos_core.feed.blocks import Block, decode, first_batches
from tfos_core.feed.budget import ByteBudget
from tfos_core.feed.cache import BlockCache, Kept
from tfos_core.feed.pickled import pickled_numbers
from tfos_core.feed.pickled_arrays import ArrayReader
from tfos_core.feed.wire import Kind

__all__ = ("Inbox", "Mark", "Piece", "Stream")


class Mark(Enum):
    """What `take` returns instead of rows."""

    EPOCH = "epoch"
    PARTITION = "partition"
    DROPPED = "dropped"
    FEED = "feed"
    SUPERSEDED = "superseded"
    NOTHING = "nothing"


@dataclass(eq=False, slots=True, kw_only=True)
class Stream:
    """One feed task's rows at this node, or a replayed epoch's; `keeps`: for later epochs. Guarded by the inbox's lock."""

    seq: int
    partition: int
    attempt: int
    infer: bool
    keeps: bool = False
    on_drained: Callable[[Stream], None]
    send_results: Callable[[Any], None] | None = None
    skip: int = 0
    consumed: int = 0
    answered: int = 0
    pending: int = 0
    ended: bool = False
    dead: bool = False
    drained: bool = False

    @property
    def is_replay(self) -> bool:
        """Whether the rows come from the cache: all partitions of the node in one."""
        return self.partition < 0

    def is_drained(self) -> bool:
        """Whether all rows came and were consumed (and answered)."""
        done = self.ended and self.pending == 0 and not self.dead
        return done and (not self.infer or self.answered == self.consumed)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive rows of one block."""

    block: Block
    start: int
    stop: int
    stream: Stream


@dataclass(eq=False, slots=True)
class _Entry:
    stream: Stream
    kind: Kind
    payload: Any
    schema: Any
    size: int
    block: Block | None = None
    position: int = 0
    first: int = 0
    kept: Kept | None = None
    #: Of a block whose first batches were no plain numbers.
    is_rest: bool = False


@dataclass(slots=True)
class _Ends:
    next_seq: int = 0
    feed_ended: bool = False
    closed: bool = False
    iteration: int = 0


class Inbox:
    """See the module; `on_consumed(stream, rows)` is called for every consumption, in the consumer's thread."""

    def __init__(self, budget: ByteBudget, *, on_consumed: Callable[[Stream, int], None], cache: BlockCache | None = None) -> None:
        self._budget = budget
        self._cache = cache or BlockCache(Path.cwd())
        self._on_consumed = on_consumed
        self._changed = threading.Condition()
        self._entries: deque[_Entry | Mark] = deque()
        self._current: _Entry | None = None
        self._serving: Stream | None = None
        self._ends = _Ends()
        self._consumer = threading.Lock()
        self._array_reader = ArrayReader()

    def put(self, stream: Stream, kind: Kind, payload: Any, size: int, schema: Any = None) -> None:
        """Add a received block, whose `size` bytes were reserved."""
        with self._changed:
            if not stream.dead and not self._ends.closed:
                stream.pending += 1
                self._entries.append(_Entry(stream, kind, payload, schema, size))
                self._changed.notify_all()
                return
        self._budget.release(size)

    def replay(self, stream: Stream, blocks: Sequence[Kept]) -> None:
        """Add blocks of the cache as rows of a stream that has no more."""
        with self._changed:
            if not self._ends.closed:
                stream.pending = len(blocks)
                self._entries += [
                    _Entry(stream, kept.kind, None, None, 0, position=kept.start, first=kept.start, kept=kept) for kept in blocks
                ]
        self.finish(stream)

    def finish(self, stream: Stream) -> None:
        """All rows of a stream have come."""
        with self._changed:
            stream.ended = True
            self._changed.notify_all()
        self._settle(stream)

    def answer(self, stream: Stream, rows: int) -> None:
        """Results for `rows` rows were sent."""
        with self._changed:
            stream.answered += rows
        self._settle(stream)

    def drop(self, stream: Stream) -> int:
        """Forget what a stream sent and was not consumed; how many of its rows were consumed."""
        with self._changed:
            stream.dead = True
            dropped = [entry for entry in self._entries if isinstance(entry, _Entry) and entry.stream is stream]
            self._entries = deque(entry for entry in self._entries if not (isinstance(entry, _Entry) and entry.stream is stream))
            if self._current is not None and self._current.stream is stream:
                dropped.append(self._current)
                self._current = None
            self._changed.notify_all()
            consumed = stream.consumed
        for entry in dropped:
            if stream.keeps and entry.kept is not None:
                self._cache.add(entry.kept, entry.first, entry.position)
            self._budget.release(entry.size)
        return consumed

    def end_epochs_before(self, seq: int) -> None:
        """Rows of epoch `seq` are coming (or it ended): every earlier epoch has ended here, whether its END came or not."""
        with self._changed:
            while self._ends.next_seq < seq:
                self._entries.append(Mark.EPOCH)
                self._ends.next_seq += 1
            self._changed.notify_all()

    def end_feed(self) -> None:
        """No row comes any more, of no epoch."""
        with self._changed:
            self._entries.append(Mark.FEED)
            self._changed.notify_all()

    def close(self) -> None:
        """Drop everything; `take` says Mark.FEED from now on."""
        with self._changed:
            self._ends.closed = True
            self._entries.clear()
            self._current = None
            self._changed.notify_all()
        self._budget.close()

    @property
    def feed_ended(self) -> bool:
        """Whether the consumer has seen the end of the feed."""
        return self._ends.feed_ended or self._ends.closed

    def begin_iteration(self) -> int:
        """A new consumer takes over; a `take` of an earlier one returns Mark.SUPERSEDED. Its number, for `take`."""
        with self._changed:
            self._ends.iteration += 1
            self._changed.notify_all()
            return self._ends.iteration

    def wake(self) -> None:
        """Make whoever waits in `take` or `wait_for` look at its condition again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], iteration: int) -> Mark | None:
        """Wait until `condition` holds, and take nothing; a mark when the feed was closed or another iteration has begun."""
        with self._changed:
            while not condition():
                if iteration != self._ends.iteration:
                    return Mark.SUPERSEDED
                if self._ends.closed:
                    return Mark.FEED
                self._changed.wait()
            return None

    def take(
        self,
        limit: int,
        *,
        iteration: int | None = None,
        unless: Callable[[], bool] | None = None,
        stream: Stream | None = None,
    ) -> Piece | Mark:
        """Up to `limit` rows of one block, or what ended. Waits for as long as the feed is open and nothing comes.

        Args:
            iteration: of `begin_iteration`, for consumers that want arrays of the rows.
            unless: a condition on which nothing is waited for: Mark.NOTHING when nothing is there.
            stream: rows of this one only: Mark.NOTHING when others come next.
        """
        with self._consumer:
            while True:
                entry = self._next(iteration, unless, stream)
                if isinstance(entry, Mark):
                    return entry
                block = self._opened(entry, arrays=iteration is not None) if entry.block is None else entry.block
                piece = None if block is None else self._commit(entry, block, limit)
                if piece is not None:
                    return piece

    def _opened(self, entry: _Entry, *, arrays: bool) -> Block | None:
        """The rows of a block; for who wants `arrays`, without making rows where that can be avoided."""
        if entry.stream.keeps:
            entry.kept, entry.block = self._cache.opened(entry.kind, entry.payload, entry.schema)
        elif entry.kept is not None:
            # None when the feed was closed meanwhile, which the next look tells.
            entry.block = self._cache.open(entry.kept)
        elif entry.kind is Kind.RAW_PICKLE and (columns := self._columns(entry, arrays=arrays)) is not None:
            entry.block = columns
        else:
            entry.block = decode(entry.kind, entry.payload, entry.schema)
        entry.payload = None
        return entry.block

    def _columns(self, entry: _Entry, *, arrays: bool) -> Block | None:
        """Rows read without unpickling them; None where that can not be, and then only the first batches stay in the entry."""
        if entry.is_rest:
            self._leave_rest(entry)
            return None
        found: Block | None = self._array_reader.read(entry.payload)
        if found is None and arrays:
            found = pickled_numbers(entry.payload)
        if found is None:
            self._leave_rest(entry)
        return found

    def _leave_rest(self, entry: _Entry) -> None:
        """Make an entry of its own of what follows the first batches: a few thousand objects at a time stay in the CPU's caches."""
        first = first_batches(entry.payload)
        with self._changed:
            if entry is self._current and first < len(entry.payload):
                payload = memoryview(entry.payload)
                rest = _Entry(entry.stream, entry.kind, payload[first:], entry.schema, entry.size - first, is_rest=True)
                entry.payload, entry.size = payload[:first], first
                entry.stream.pending += 1
                self._entries.appendleft(rest)

    def _next(self, iteration: int | None, unless: Callable[[], bool] | None, stream: Stream | None) -> _Entry | Mark:
        with self._changed:
            while True:
                if iteration is not None and iteration != self._ends.iteration:
                    return Mark.SUPERSEDED
                if self._ends.closed or self._ends.feed_ended:
                    return Mark.FEED
                if self._serving is not None and (mark := self._served()) is not None:
                    self._serving = None
                    return mark
                head = self._current or (self._entries[0] if self._entries else None)
                if stream is not None and isinstance(head, _Entry) and head.stream is not stream:
                    return Mark.NOTHING
                if self._current is not None:
                    return self._current
                if self._entries:
                    head = self._entries.popleft()
                    if isinstance(head, Mark):
                        self._ends.feed_ended = head is Mark.FEED
                        return head
                    self._current = head
                    self._serving = head.stream if head.stream.infer else None
                    return head
                if unless is not None and unless():
                    return Mark.NOTHING
                self._changed.wait()

    def _served(self) -> Mark | None:
        stream = self._serving
        if stream is None:
            return None
        if stream.dead:
            return Mark.DROPPED
        return Mark.PARTITION if stream.ended and stream.pending == 0 else None

    def _commit(self, entry: _Entry, block: Block, limit: int) -> Piece | None:
        """Hand rows out: from here on they count as consumed. None when the block was dropped or had only rows to skip."""
        with self._changed:
            if entry is not self._current:
                return None
            stream = entry.stream
            end = len(block) if stream.keeps or entry.kept is None else entry.kept.stop
            if stream.skip:
                skipped = min(stream.skip, end - entry.position)
                stream.skip -= skipped
                entry.position += skipped
                entry.first = entry.position
            start = entry.position
            stop = min(start + limit, end)
            entry.position = stop
            stream.consumed += stop - start
            exhausted = stop == end
            if exhausted:
                stream.pending -= 1
                self._current = None
        if exhausted:
            if stream.keeps and entry.kept is not None:
                self._cache.add(entry.kept, entry.first, stop)
            self._budget.release(entry.size)
        if stop > start:
            self._on_consumed(stream, stop - start)
        if exhausted:
            self._settle(stream)
        return Piece(block, start, stop, stream) if stop > start else None

    def _settle(self, stream: Stream) -> None:
        with self._changed:
            if stream.drained or not stream.is_drained():
                return
            stream.drained = True
        stream.on_drained(stream)
