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
from tfos_core.feed.numbers import NumbersBlock, to_numbers
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
        ["a", "b"],
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
    for made, own in zip(arrays(block, 1, 5), arrays(decode_plain(Kind.RAW_PICKLE, frame(rows))[0], 1, 5), strict=True):
        assert made.astype(own.dtype).tolist() == own.tolist()


def frame(rows: list[Any]) -> np.ndarray[Any, Any]:
    data = pickle.dumps(rows, 5)
    return np.frombuffer(struct.pack("!I", len(data)) + data, np.uint8)


def test_only_built_in_types_are_plain() -> None:
    assert decode_plain(Kind.RAW_PICKLE, frame([([1.0], "a", None, b"c", {1: (2,)}, 2**80)]))[1]
    for value in (np.float64(1.5), decimal.Decimal(2), Point(1, 2)):
        block, is_plain = decode_plain(Kind.RAW_PICKLE, frame([(value,)]))
        assert not is_plain
        assert block.rows(0, 1) == [(value,)]
