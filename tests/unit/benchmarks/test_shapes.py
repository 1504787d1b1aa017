"""The rows that are fed are the same for every side and every run."""

from __future__ import annotations

import numpy as np
import pytest
from goals import _SHAPES
from shapes import SHAPES, Rows, Shape


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_partition_has_as_many_rows_as_asked_and_always_the_same(shape: Shape) -> None:
    rows, again = (list(Rows(shape=shape.name, per_partition=1001)(2)) for _ in range(2))
    assert len(rows) == 1001
    assert repr(rows[-1]) == repr(again[-1])
    assert repr(rows[0]) != repr(rows[1])


def test_rows_are_what_their_shape_says() -> None:
    first = {shape.name: next(Rows(shape=shape.name, per_partition=1)(0)) for shape in SHAPES}
    assert [type(value) for value in first["tuple10"]] == [float] * 10
    values, label = first["list784"]
    assert (len(values), type(values[0]), type(label)) == (784, float, int)
    assert (first["numpy784"].shape, first["numpy784"].dtype) == ((784,), np.float32)
    assert len(first["frame10"]) == 10 and len(first["binary"][0]) == 3072
    assert len(first["strings"]) == 100


def test_every_shape_has_goals() -> None:
    assert set(_SHAPES) == {shape.shown for shape in SHAPES}
