"""CRC-32C of many ranges, against a bitwise implementation and published values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.tfrecords.crc32c import LANE_BYTES, crc32c, masked_crc32c
from tfos_core.tfrecords.ranges import offsets_of


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def together(parts: list[bytes]) -> list[int]:
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    buffer = np.frombuffer(b"".join(parts), dtype=np.uint8)
    return crc32c(buffer, offsets_of(sizes)[:-1], sizes).tolist()


@pytest.mark.parametrize(
    ("data", "expected"),
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)],
)
def test_known_values_of_rfc_3720(data: bytes, expected: int) -> None:
    assert together([data]) == [expected]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_short_ranges_of_all_sizes_agree_with_the_definition(parts: list[bytes]) -> None:
    assert together(parts) == [bitwise(part) for part in parts]


@pytest.mark.parametrize("size", [LANE_BYTES - 1, LANE_BYTES, LANE_BYTES + 1, 17 * LANE_BYTES, 300 * LANE_BYTES + 5])
def test_ranges_that_need_one_or_many_lanes_agree_with_the_definition(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    assert together([b"abc", data, b""]) == [bitwise(b"abc"), bitwise(data), 0]


def test_the_masked_form_is_the_one_of_tensorflow() -> None:
    # The header of a record of 0 bytes, as TensorFlow writes it.
    assert masked_crc32c(np.zeros(8, np.uint8), np.zeros(1, np.int64), np.array([8])).astype("<u4").tobytes() == b"\x29\x03\x98\x07"
