"""CRC-32C of many ranges, against a bitwise implementation and published values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.tfrecords.crc32c import LANE_BYTES, crc32c, masked_crc32c
from tfos_core.tfrecords.folding import MULTIPLES, fold
from tfos_core.tfrecords.ranges import offsets_of


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def linear(message: bytes) -> int:
    """The checksum without what its initial value and the complement at its end add."""
    return bitwise(message) ^ bitwise(bytes(len(message)))


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


def test_ranges_of_very_different_sizes_agree_with_the_definition() -> None:
    random = np.random.default_rng(1)
    for longest in (300, 3000, 9000):
        parts = [random.integers(0, 256, size, dtype=np.uint8).tobytes() for size in random.integers(0, longest, 60)]
        assert together(parts) == [bitwise(part) for part in parts]


def test_more_lanes_than_are_turned_at_once_agree_with_the_definition() -> None:
    data = np.random.default_rng(2).integers(0, 256, 700 * 1003, dtype=np.uint8)
    found = crc32c(data, np.arange(700) * 1003, np.full(700, 1003))
    assert [int(found[number]) for number in (0, 522, 523, 699)] == [
        bitwise(data[number * 1003 : (number + 1) * 1003].tobytes()) for number in (0, 522, 523, 699)
    ]


def test_every_bit_of_a_long_range_counts() -> None:
    data = np.random.default_rng(3).integers(0, 256, 3001, dtype=np.uint8)
    copies = np.tile(data, (3002, 1))
    copies[np.arange(3001), np.arange(3001)] ^= 1 << (np.arange(3001) % 8).astype(np.uint8)
    found = crc32c(copies.reshape(-1), np.arange(3002) * 3001, np.full(3002, 3001))
    assert len(set(found.tolist())) == 3002


@pytest.mark.parametrize("exponents", MULTIPLES)
def test_words_are_folded_along_multiples_of_the_polynomial(exponents: tuple[int, ...]) -> None:
    polynomial = 0x11EDC6F41
    value = sum(1 << (32 * exponent) for exponent in exponents)
    while value >= 1 << 32:
        value ^= polynomial << (value.bit_length() - 33)
    assert value == 0
    assert exponents == tuple(sorted(exponents, reverse=True))


@pytest.mark.parametrize("words", [1, 66, 67, 104, 105, 209, 210, 291, 1024])
def test_a_folded_message_has_the_checksum_of_the_whole_one(words: int) -> None:
    columns = np.random.default_rng(words).integers(0, 1 << 32, (words, 2), dtype=np.uint32)
    whole = [column.astype("<u4").tobytes() for column in columns.copy().T]
    left = fold(columns)
    assert len(left) == min(words, 66)
    # Without its first and last complement, which depend on the length, leading zeros do not count.
    for column, message in zip(left.T, whole, strict=True):
        assert linear(bytes(len(message) - 4 * len(left)) + column.astype("<u4").tobytes()) == linear(message)


def test_the_masked_form_is_the_one_of_tensorflow() -> None:
    # The header of a record of 0 bytes, as TensorFlow writes it.
    assert masked_crc32c(np.zeros(8, np.uint8), np.zeros(1, np.int64), np.array([8])).astype("<u4").tobytes() == b"\x29\x03\x98\x07"
