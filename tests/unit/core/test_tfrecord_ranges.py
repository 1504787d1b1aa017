"""Copies of many ranges, against slices."""

from __future__ import annotations

import numpy as np
import pytest

from tfos_core.tfrecords.ranges import Pieces, copy_ranges, gather

SOURCE = np.random.default_rng(1).integers(0, 256, 100_000, dtype=np.uint8)


@pytest.mark.parametrize(
    ("starts", "size"),
    [
        ([7], 300),
        ([7, 407, 807], 300),
        ([7, 307, 607], 300),
        ([7, 407, 900], 300),
        ([7, 107, 207], 300),
        ([900, 500, 100], 300),
        ([50, 50, 50], 300),
        ([7, 407, 807], 5),
        ([7, 20_007, 40_007], 17_000),
        ([7, 407], 0),
    ],
    ids=["one", "spaced", "adjacent", "unevenly", "overlapping", "backwards", "the same", "short", "large", "empty"],
)
def test_ranges_of_one_size_come_one_after_the_other(starts: list[int], size: int) -> None:
    together, offsets = gather(SOURCE, np.array(starts), np.full(len(starts), size))
    assert together.tobytes() == b"".join(SOURCE[start : start + size].tobytes() for start in starts)
    assert offsets.tolist() == [size * number for number in range(len(starts) + 1)]


def test_ranges_of_different_sizes_come_one_after_the_other() -> None:
    sizes = np.random.default_rng(2).integers(0, 900, 100)
    starts = np.random.default_rng(3).integers(0, 99_000, 100)
    together, _ = gather(SOURCE, starts, sizes)
    whole = b"".join(SOURCE[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True))
    assert together.tobytes() == whole


def test_what_lies_between_equally_spaced_targets_stays() -> None:
    target = np.zeros(1000, dtype=np.uint8)
    copy_ranges(Pieces(source=SOURCE, starts=np.array([0, 100]), sizes=np.array([80, 80])), target, np.array([10, 510]))
    assert target[10:90].tolist() == SOURCE[:80].tolist()
    assert target[510:590].tolist() == SOURCE[100:180].tolist()
    assert not target[90:510].any()
    assert not target[590:].any()


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_gathered_bytes_lie_where_tensorflow_takes_them_without_a_copy(size: int) -> None:
    together, _ = gather(SOURCE, np.array([3, 6003]), np.array([size, size]))
    assert together.ctypes.data % 64 == 0
