"""The order in which rows come out: as they lie, or mixed in a pool; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfos_core.direct.tensors import Array

__all__ = ("mixed",)


def mixed(blocks: Iterable[Sequence[Array]], pool_rows: int, seed: Sequence[int]) -> Iterator[list[Array]]:
    """The rows of all blocks, each once, drawn at random from a pool that holds at least `pool_rows` of them while more come.

    Args:
        blocks: arrays of equal numbers of rows.
        seed: the order is the same for the same seed and the same blocks.
    """
    random = np.random.default_rng(list(seed))
    waiting: list[Sequence[Array]] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block[0])
        # Twice as many as have to stay: then every row is copied twice on its way, whatever the size of blocks.
        if count >= 2 * pool_rows:
            joined = _shuffled(waiting, count, random)
            yield [column[pool_rows:] for column in joined]
            waiting, count = [[column[:pool_rows] for column in joined]], min(count, pool_rows)
    if count:
        yield _shuffled(waiting, count, random)


def _shuffled(blocks: Sequence[Sequence[Array]], count: int, random: np.random.Generator) -> list[Array]:
    order = random.permutation(count)
    return [(parts[0] if len(parts) == 1 else np.concatenate(parts))[order] for parts in zip(*blocks, strict=True)]
