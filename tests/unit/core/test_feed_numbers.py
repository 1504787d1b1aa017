"""Rows as arrays of numbers: the same Python values come back, or the rows are left alone."""

from __future__ import annotations

import collections
import decimal
import math
import pickle
import random
import struct
from typing import Any

import numpy as np
import pytest

from tfos_core.feed.blocks import decode_plain
from tfos_core.feed.elements import arrays
from tfos_core.feed.numbers import NumbersBlock, compact, to_numbers
from tfos_core.feed.pickled import pickled_numbers
from tfos_core.feed.wire import Kind

Point = collections.namedtuple("Point", "x y")


def exact(value: Any) -> Any:
    """Something that is equal only for values of the same types and bits."""
    if isinstance(value, list | tuple):
        return type(value), tuple(map(exact, value))
    return type(value), struct.pack("d", value) if type(value) is float else value


@pytest.mark.parametrize(
    "rows",
    [
        [([random.Random(i).random() for _ in range(20)], i) for i in range(5)],
        [([0.0, -0.0, 1.5, math.inf, -math.inf], -1), ([math.nan, 1e308, 5e-324, 0.1, 1.0], 2**40)],
        [[0, 255, 3], [1, 2, 3]],
        [[[1, -200], [3, 4]], [[5, 6], [7, 8]]],
        [[True, False], [False, False]],
        [(1.5, 2.5), (0.5, -0.0)],
        [((1.0, 0.1), "a", b"b", True), ((2.0, 3.0), "ä", b"", False)],
        [1, 2, 2**62],
        [0.1, 0.2],
        [(-(2**63),), (2**63 - 1,)],
    ],
)
def test_the_very_same_values_come_back(rows: list[Any]) -> None:
    block = to_numbers(rows)
    assert block is not None
    assert block.rows(0, len(rows)) == rows or any(math.isnan(x) for row in rows for x in row[0])
    kept = NumbersBlock(block.form, block.arrays, block.size)
    assert exact(kept.rows(0, len(rows))) == exact(rows)
    assert exact(kept.rows(1, 2)) == exact(rows[1:2])
    assert kept.rows(0, 1)[0] is not kept.rows(0, 1)[0] or not isinstance(rows[0], list), "lists are made anew"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["a", "b"],
        [("a", b"b")],
        [([1.0, 2], 0)],
        [([1.0, True], 0)],
        [([1.0, 2.0], 0), ([1.0], 0)],
        [([], 0)],
        [(1.0, 0), (1, 0)],
        [(1.0, 0), [1.0, 0]],
        [(1.0, 0), (1.0,)],
        [(None,), (1.0,)],
        [{"x": 1.0}],
        [[2**70, 1]],
        [(2**70,)],
        [()],
        [Point(1.0, 2.0)],
        [(decimal.Decimal(1),)],
        [[[1.0], [1.0, 2.0]]],
        [([1.0, "a"],)],
    ],
)
def test_other_rows_are_left_as_they_are(rows: list[Any]) -> None:
    assert to_numbers(rows) is None


def test_arrays_are_as_small_as_the_values_allow() -> None:
    block = to_numbers([([0.5, 0.25], [1, 300], 7, 0.1), ([0.75, 3.0], [-1, 2], 200, 0.2)])
    assert block is not None
    assert [array.dtype.name for array in block.arrays] == ["float32", "int16", "uint8", "float64"]


def test_tensors_are_those_of_the_rows_themselves() -> None:
    rows = [([0.1 * i, 0.5], i, "t") for i in range(6)]
    block = to_numbers(rows)
    assert block is not None
    raw = read(frame([row[:2] for row in rows]))
    assert raw is not None
    for made, fast in zip(arrays(block, 1, 5), arrays(raw, 1, 5), strict=False):
        assert (made.dtype, made.tolist()) == (fast.dtype, fast.tolist())
    for made, own in zip(arrays(block, 1, 5), arrays(decode_plain(Kind.RAW_PICKLE, frame(rows))[0], 1, 5), strict=True):
        assert (made.dtype, made.tolist()) == (own.dtype, own.tolist())


def read(payload: Any) -> NumbersBlock | None:
    return pickled_numbers(payload, least_bytes=0)


def test_small_batches_are_not_worth_it() -> None:
    small, large = ([(floats(10), 1) for _ in range(size)] for size in (30, 60))
    assert pickled_numbers(frame(small)) is None
    assert pickled_numbers(frame(large)) is not None
    assert pickled_numbers(np.concatenate([frame(large), frame(large[:10])])) is None


def frame(rows: list[Any]) -> np.ndarray[Any, Any]:
    data = pickle.dumps(rows, 5)
    return np.frombuffer(struct.pack("!I", len(data)) + data, np.uint8)


def test_only_built_in_types_are_plain() -> None:
    assert decode_plain(Kind.RAW_PICKLE, frame([([1.0], "a", None, b"c", {1: (2,)}, 2**80)]))[1]
    for value in (np.float64(1.5), decimal.Decimal(2), Point(1, 2)):
        block, is_plain = decode_plain(Kind.RAW_PICKLE, frame([(value,)]))
        assert not is_plain
        assert block.rows(0, 1) == [(value,)]


NUMBERS = random.Random(7)


def floats(count: int) -> list[float]:
    return [NUMBERS.uniform(-1, 1) for _ in range(count)]


@pytest.mark.parametrize("size", [1, 2, 999, 1000, 1001, 2002])
@pytest.mark.parametrize(
    "row",
    [
        lambda i: (floats(3), i % 200),
        lambda i: tuple(floats(10)),
        lambda i: (0.5, i % 2 == 0, 70_000 + i),
        lambda i: (float(i),),
        lambda i: float("nan") if i % 3 else -0.0,
        lambda i: floats(4),
        lambda i: (floats(2), floats(3)),
        lambda i: (floats(2), 300 + i, floats(3), True, 1.5),
        lambda i: i % 256,
    ],
)
def test_numbers_are_read_out_of_pickles_as_pickle_reads_them(row: Any, size: int) -> None:
    rows = [row(i) for i in range(size)]
    block = read(frame(rows))
    assert block is not None
    assert (len(block), exact(block.rows(0, size))) == (size, exact(rows))
    assert exact(compact(block).rows(0, size)) == exact(rows)


def test_wide_rows_and_several_batches_are_read_too() -> None:
    for width in (2, 784, 1000, 1001, 2500):
        batches = [[(floats(width), i % 10) for i in range(size)] for size in (7, 1, 30)]
        block = read(np.concatenate([frame(rows) for rows in batches]))
        assert block is not None
        assert block.rows(0, len(block)) == [row for rows in batches for row in rows]


shared = [1.0, 2.0]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [1.0, 2],
        [(1.0, 2.0), (1.0, 2)],
        [(1.0, 3), (1.0, 300)],
        [([1.0, 2.0], 1), ([1.0, 2.0, 3.0], 1)],
        [([1.0, 2.0], 1), ([1.0], 1)],
        [([1.0], 1), ([2.0], 1)],
        [([], 1), ([], 1)],
        [([1.0, 2], 1), ([1.0, 2], 1)],
        [(shared, 1), (shared, 1)],
        [(1.0, "a"), (1.0, "b")],
        [(1.0, None)],
        [[1.0, 2.0], (1.0, 2.0)],
        [(2**40,), (2**41,)],
        [((1.0, 2.0), 1)],
        [{"x": 1.0}],
        [np.float64(1.5)],
        [Point(1.0, 2.0)],
        ["text"] * 50,
        [(floats(3), 1), (floats(3), 1, 2)],
    ],
)
def test_whatever_looks_different_is_left_to_pickle(rows: list[Any]) -> None:
    assert read(frame(rows)) is None


def test_batches_of_different_forms_are_left_to_pickle() -> None:
    for other in ([(1.0, 2)], [([1.0, 2.0, 3.0], 1)], [1.0]):
        assert read(np.concatenate([frame([([1.0, 2.0], 1)]), frame(other)])) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(1.5, 2), (2.5, 3)], [(3, 4.5), (5, 6.5)]),
        ([(1.0, True), (2.0, True)], [(1.0, 7), (2.0, 8)]),
        ([1.0, 2.0], [3, 4]),
        ([True, False], [3, 4]),
        ([([1.0, 2.0], True)], [([1.0, 2.0], 5)]),
    ],
)
def test_columns_of_two_types_are_left_to_pickle(first: list[Any], second: list[Any]) -> None:
    """NumPy would make one type of them: 3 would come back as 3.0, and True as 1."""
    assert read(frame(first)) is not None
    assert read(frame(second)) is not None
    assert read(np.concatenate([frame(first), frame(second)])) is None


def test_integers_of_other_sizes_in_the_next_batch_are_read() -> None:
    batches = [[(0.5, 1), (1.5, 2)], [(0.25, 70_000), (0.5, 70_001)], [(1.5, 300)], [(1.5, 301), (2.5, 302)]]
    block = read(np.concatenate([frame(rows) for rows in batches]))
    assert block is not None
    assert exact(block.rows(0, len(block))) == exact([row for rows in batches for row in rows])


def test_batches_of_more_than_a_thousand_rows_are_read_whatever_their_size() -> None:
    for width in (1, 40):
        rows = [(*floats(width), i % 100) for i in range(2300)]
        block = read(np.concatenate([frame(rows), frame(rows[:1001])]))
        assert block is not None
        assert exact(block.rows(0, len(block))) == exact(rows + rows[:1001])


@pytest.mark.parametrize("before", [0, 30], ids=["the first batch", "a second batch"])
def test_damaged_pickles_are_read_as_pickle_reads_them_or_left_to_it(before: int) -> None:
    rows = [(floats(20), i) for i in range(30)]
    good = frame(rows)
    for place in (*range(4, 60), *range(60, len(good), 37), *range(len(good) - 20, len(good))):
        damaged = good.copy()
        damaged[place] ^= 0x15
        block = read(np.concatenate([good, damaged]) if before else damaged)
        if block is not None:
            found = exact(block.rows(before, len(block)))
            assert found == exact(pickle.loads(damaged[4:].tobytes()))


def test_other_pickles_are_left_to_pickle() -> None:
    rows = [(floats(20), i) for i in range(30)]
    for protocol in (0, 1, 2, 3):
        data = pickle.dumps(rows, protocol)
        assert read(np.frombuffer(struct.pack("!I", len(data)) + data, np.uint8)) is None
    assert read(np.empty(0, np.uint8)) is None
