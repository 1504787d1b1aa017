"""Blocks that hold several pickled batches: taken apart when they are opened, and counted as one."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tfos_core.feed.blocks import first_batches
from tfos_core.feed.budget import ByteBudget
from tfos_core.feed.inbox import Inbox, Mark, Piece, Stream
from tfos_core.feed.wire import Kind

ROWS, BATCHES = 1000, 5


def payload_of(batches: int) -> bytearray:
    """Pickled batches of strings with their lengths, as Spark's Python workers get them."""
    payload = bytearray()
    for number in range(batches):
        pickled = pickle.dumps([f"{number * ROWS + row:040}" for row in range(ROWS)], 5)
        payload += struct.pack("!I", len(pickled)) + pickled
    return payload


class Bench:
    """An inbox with one block of five batches."""

    def __init__(self) -> None:
        self.consumed = 0
        self.drained: list[Stream] = []
        payload = payload_of(BATCHES)
        self.budget = ByteBudget(len(payload))
        self.budget.reserve(len(payload))
        self.inbox = Inbox(self.budget, on_consumed=self._on_consumed)
        self.stream = Stream(seq=0, partition=0, attempt=0, infer=False, on_drained=self.drained.append)
        self.inbox.put(self.stream, Kind.RAW_PICKLE, payload, len(payload))
        self.inbox.finish(self.stream)
        self.inbox.end_epochs_before(1)

    def _on_consumed(self, stream: Stream, rows: int) -> None:
        self.consumed += rows

    def take(self, limit: int, **options: Any) -> list[int] | Mark:
        taken = self.inbox.take(limit, **options)
        return [int(row) for row in taken.block.rows(taken.start, taken.stop)] if isinstance(taken, Piece) else taken


@pytest.fixture
def bench() -> Bench:
    return Bench()


def plainly(bench: Bench) -> Callable[[int], list[int] | Mark]:
    return bench.take


def for_arrays(bench: Bench) -> Callable[[int], list[int] | Mark]:
    iteration = bench.inbox.begin_iteration()
    return lambda limit: bench.take(limit, iteration=iteration)


@pytest.mark.parametrize("way", [plainly, for_arrays])
def test_rows_of_all_batches_come_once_and_in_order(bench: Bench, way: Callable[[Bench], Any]) -> None:
    take = way(bench)
    rows: list[int] = []
    while len(rows) < ROWS * BATCHES:
        assert bench.drained == []
        taken = take(300)
        assert isinstance(taken, list) and len(taken) <= 300
        rows += taken
    assert rows == list(range(ROWS * BATCHES))
    assert bench.drained == [bench.stream]
    assert take(1) is Mark.EPOCH
    assert bench.consumed == ROWS * BATCHES
    assert bench.budget.used == 0


def test_only_as_many_batches_as_are_needed_become_objects(bench: Bench) -> None:
    assert first_batches(payload_of(BATCHES), 1) == len(payload_of(1))
    taken = bench.inbox.take(1)
    assert isinstance(taken, Piece)
    assert len(taken.block) == ROWS


def test_a_stream_that_is_dropped_in_the_middle_leaves_nothing_and_gives_its_bytes_back(bench: Bench) -> None:
    assert bench.take(1200) == list(range(ROWS))
    assert bench.take(200) == list(range(ROWS, ROWS + 200))
    assert bench.inbox.drop(bench.stream) == ROWS + 200
    assert bench.take(1) is Mark.EPOCH
    assert bench.budget.used == 0


def test_a_later_attempt_skips_what_was_consumed_across_batches(bench: Bench) -> None:
    bench.stream.skip = 2 * ROWS + 10
    assert bench.take(5) == list(range(2 * ROWS + 10, 2 * ROWS + 15))
