"""Who reads what: contiguous, equal ranges of a row of pieces; pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ("Part", "Shard", "share_of", "shuffled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The share `index` of `count` equal ones; `Shard(index=0, count=1)` is everything."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """From `begin` up to `end` of a piece that is `length` long; `piece` is its number."""

    piece: int
    begin: int
    end: int
    length: int

    @property
    def is_whole(self) -> bool:
        """Whether nobody else has anything of the piece."""
        return self.begin == 0 and self.end == self.length


def share_of(lengths: Sequence[int], shard: Shard, order: Sequence[int] | None = None) -> tuple[Part, ...]:
    """The parts of one share.

    All shares together are all pieces, without a gap or an overlap, and their sizes differ by at most one.

    Args:
        lengths: of the pieces.
        order: which pieces follow each other; the same on all nodes. None leaves them as they are.

    >>> share_of([10, 1], Shard(index=1, count=2))
    (Part(piece=0, begin=5, end=10, length=10), Part(piece=1, begin=0, end=1, length=1))
    """
    total = sum(lengths)
    first, last = total * shard.index // shard.count, total * (shard.index + 1) // shard.count
    parts: list[Part] = []
    start = 0
    for piece in order if order is not None else range(len(lengths)):
        length = lengths[piece]
        begin, end = max(first - start, 0), min(last - start, length)
        if begin < end:
            parts.append(Part(piece=piece, begin=begin, end=end, length=length))
        start += length
    return tuple(parts)


def shuffled(count: int, seed: int, *more: int) -> list[int]:
    """The numbers below `count` in an order that depends on the seeds only."""
    order = list(range(count))
    # Not for secrets: every node has to come to the same order.
    random.Random(":".join(map(str, (seed, *more)))).shuffle(order)  # noqa: S311
    return order
