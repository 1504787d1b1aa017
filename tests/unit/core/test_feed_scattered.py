"""Scattered columns are the arrays that they will be gathered to, whether sliced, joined, or made a dataset of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfos_core.feed.dataset import _concatenated
from tfos_core.feed.scattered import Scattered, byte_rows

Array = np.ndarray[Any, Any]


def scattered(values: Array, *, gap: int = 5, cut: int = 3) -> Scattered:
    """The bytes of these values with others in between, in two parts, as in two pickled batches."""
    parts = []
    for some in (values[:cut], values[cut:]):
        width = some[0].nbytes if len(some) else 1
        lying = np.full((len(some), width + gap), 255, np.uint8)
        # An odd offset: nothing says that values are aligned.
        lying[:, 1 : 1 + width] = np.ascontiguousarray(some).reshape(len(some), -1).view(np.uint8) if len(some) else 0
        parts.append(lying[:, 1 : 1 + width])
    return Scattered(values.dtype, values.shape[1:], tuple(part for part in parts if len(part)))


VALUES = {
    "matrices": np.arange(8 * 6, dtype=np.float32).reshape(8, 2, 3),
    "rows": np.arange(8 * 3).reshape(8, 3),
    "numbers": np.arange(8, dtype=np.int16),
    "big-endian": np.arange(8 * 3, dtype=">f4").reshape(8, 3),
    "booleans": np.arange(8 * 2).reshape(8, 2) % 3 == 0,
}


@pytest.mark.parametrize("name", VALUES)
def test_what_is_gathered_is_what_was_there(name: str) -> None:
    values = VALUES[name]
    column = scattered(values)
    assert (len(column), column.shape, column.dtype) == (len(values), values.shape, values.dtype)
    assert same(column.gathered(), values)


@pytest.mark.parametrize("name", VALUES)
def test_a_slice_is_that_of_the_array(name: str) -> None:
    values, column = VALUES[name], scattered(VALUES[name])
    for start in range(len(values) + 1):
        for stop in range(start, len(values) + 3):
            assert same(column[start:stop].gathered(), values[start:stop])
    assert same(column[2:7][1:4].gathered(), values[2:7][1:4])
    with pytest.raises(ValueError, match="a step of 2"):
        column[::2]


@pytest.mark.parametrize("name", VALUES)
def test_columns_are_joined_as_arrays_are(name: str) -> None:
    values = VALUES[name]
    expected = np.concatenate([values, values[2:5], values])
    # Native, as NumPy joins arrays of another byte order.
    for parts in ([scattered(values), values[2:5], scattered(values, gap=2, cut=8)], [values, scattered(values[2:5]), values]):
        joined = _concatenated(parts)
        assert joined.dtype == values.dtype.newbyteorder("=")
        assert np.array_equal(joined, expected)
        assert joined.ctypes.data % 64 == 0


def test_one_scattered_column_becomes_an_array_of_its_own() -> None:
    column = scattered(VALUES["rows"])
    first, second = _concatenated([column]), _concatenated([column])
    first[:] = 0
    assert same(second, VALUES["rows"])
    assert same(column.gathered(), VALUES["rows"])


def test_columns_of_two_types_are_joined_as_the_type_that_holds_both() -> None:
    parts = [scattered(VALUES["numbers"]), scattered(np.arange(8, dtype=np.float32))]
    joined = _concatenated(parts)
    assert joined.dtype == np.float32
    assert np.array_equal(joined, np.tile(np.arange(8), 2))
    assert byte_rows(parts, np.dtype(np.float32)) is None


def test_no_row_is_an_array_of_no_rows() -> None:
    empty = scattered(VALUES["rows"])[3:3]
    assert empty.gathered().shape == (0, 3)
    assert _concatenated([empty, VALUES["rows"][:0]]).shape == (0, 3)
    assert same(_concatenated([empty, VALUES["rows"]]), VALUES["rows"])


def same(one: Array, other: Array) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
