"""Arrays read out of pickled batches are those that pickle makes, and whatever is not sure is left to pickle."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfos_core.errors import FeedError
from tfos_core.feed.blocks import decode
from tfos_core.feed.budget import ByteBudget
from tfos_core.feed.inbox import Inbox, Piece, Stream
from tfos_core.feed.pickled_arrays import ArrayReader
from tfos_core.feed.wire import Kind


class Labelled(np.ndarray[Any, Any]):
    """What is an array and not only that."""


Make = Callable[[int], Any]
RANDOM = np.random.default_rng(3)


def payload(*batches: list[Any]) -> np.ndarray[Any, Any]:
    """As Spark has them: batches with their lengths."""
    pickled = [pickle.dumps(batch, 5) for batch in batches]
    return np.frombuffer(bytearray(b"".join(struct.pack("!I", len(data)) + data for data in pickled)), np.uint8)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        alike = type(other) is np.ndarray and (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.tobytes() == other.tobytes()
    return type(one) is type(other) and bool(one == other)


def rows(make: Make, count: int) -> list[Any]:
    return [make(number) for number in range(count)]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.random(shape, dtype="float32")


ALIKE: dict[str, Make] = {
    "arrays": lambda i: floats(784),
    "large arrays, over many frames": lambda i: floats(30_000),
    "float64": lambda i: RANDOM.random(20),
    "bytes": lambda i: RANDOM.integers(0, 255, (28, 28), np.uint8),
    "complex, big-endian": lambda i: floats(3).astype(">c16"),
    "booleans": lambda i: floats(9) > 0.5,
    "read-only": lambda i: np.frombuffer(RANDOM.bytes(40), np.int64),
    "array and label": lambda i: (floats(28, 28), i % 10),
    "label first": lambda i: (i % 10, floats(5)),
    "label like the shape": lambda i: (floats(7), 7),
    "label like the number of axes": lambda i: (floats(2, 3), 3),
    "two arrays": lambda i: (floats(3), RANDOM.integers(0, 9, 4)),
    "array and numbers": lambda i: (floats(4), 0.25 * i, 70_000 + i, -i - 1),
    "label of two bytes": lambda i: (floats(4), 300 + i),
}


@pytest.mark.parametrize("count", [1, 2, 31, 1001])
@pytest.mark.parametrize("name", ALIKE)
def test_rows_are_those_that_pickle_makes(name: str, count: int) -> None:
    if name.startswith("large"):
        count = min(count, 31)
    reader = ArrayReader()
    for _ in range(3):
        sent = [rows(ALIKE[name], count) for _ in range(2)]
        read = reader.read(payload(*sent))
        assert read is not None
        assert len(read) == 2 * count
        assert all(map(same, sent[0] + sent[1], read.rows(0, 2 * count)))
    assert reader._made == 1, "one template is for all batches of a length"


UNLIKE: dict[str, Make] = {
    "numbers": float,
    "lists": lambda i: [0.5 * i],
    "other shapes": lambda i: floats(3 + i % 2),
    "other types": lambda i: floats(3) if i % 2 else RANDOM.integers(0, 9, 3, np.int32),
    "Fortran's order": lambda i: np.asfortranarray(floats(3, 4)),
    "not contiguous": lambda i: floats(6, 4)[::2, ::2],
    "no axes": lambda i: np.array(0.5 * i),
    "objects": lambda i: np.array([i, None], dtype=object),
    "texts": lambda i: np.array(["a", "b"]),
    "dates": lambda i: np.array(["2026-01-01"], "datetime64[D]"),
    "empty": lambda i: floats(0),
    "array and text": lambda i: (floats(3), f"{i}"),
    "array and None": lambda i: (floats(3), None),
    "array and boolean": lambda i: (floats(3), True),
    "array and a number of NumPy": lambda i: (floats(3), np.float32(i)),
    "now and then a float": lambda i: (floats(3), i if i % 7 else 0.5),
    "labels of one and two bytes": lambda i: (floats(3), i * 20),
    "longer tuples": lambda i: (floats(3), 1) if i % 2 else (floats(3), 1, 2),
    "dicts": lambda i: {"x": floats(3)},
    "lists of arrays": lambda i: [floats(3), floats(3)],
    "a class of its own": lambda i: floats(3).view(Labelled),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_rows_of_other_kinds_are_left_to_pickle(name: str) -> None:
    assert ArrayReader().read(payload(rows(UNLIKE[name], 40))) is None


def test_rows_that_can_not_be_unpickled_are_left_to_who_can_say_why() -> None:
    data = payload([(floats(3), Labelled)] * 2).tobytes().replace(b"test_feed_pickled_arrays", b"nest_feed_pickled_arrays")
    block = np.frombuffer(bytearray(data), np.uint8)
    assert ArrayReader().read(block) is None
    with pytest.raises(FeedError, match="can not be unpickled on the node"):
        decode(Kind.RAW_PICKLE, block)


def test_the_same_array_twice_is_left_to_pickle() -> None:
    """pickle writes it once, so its bytes are not those of two rows."""
    one = floats(5)
    assert ArrayReader().read(payload([one, one, floats(5)])) is None


@pytest.mark.parametrize(
    "other",
    [
        lambda i: floats(5).astype(np.int32) + i,
        lambda i: floats(5, 1),
        lambda i: floats(5).astype(">f4"),
        lambda i: np.asfortranarray(floats(5)),
    ],
    ids=["type", "shape", "byte order", "one axis in Fortran's order"],
)
def test_a_batch_of_another_type_or_shape_is_not_taken_for_the_one_before(other: Make) -> None:
    reader, plain = ArrayReader(), rows(lambda _: floats(5), 20)
    assert reader.read(payload(plain)) is not None
    sent = rows(other, 20)
    for batches in ([sent], [plain, sent], [sent, plain]):
        read, expected = reader.read(payload(*batches)), [row for batch in batches for row in batch]
        assert read is None or all(map(same, expected, read.rows(0, len(expected))))


def test_every_byte_outside_of_values_counts() -> None:
    sent = rows(lambda i: (floats(3), i % 10), 4)
    reader = ArrayReader()
    whole = payload(sent)
    assert reader.read(whole) is not None
    (template,) = reader._templates.values()
    for place in template.places:
        changed = whole.copy()
        changed[4 + place] ^= 1
        assert not template.fits(changed[4:])


def test_batches_that_never_fit_are_no_longer_looked_at() -> None:
    reader = ArrayReader()
    for count in range(1, 60):
        reader.read(payload(rows(UNLIKE["array and text"], count)))
    made = reader._made
    assert made < 20
    assert reader.read(payload(rows(ALIKE["arrays"], 3))) is None
    assert reader._made == made


def test_templates_are_bounded() -> None:
    reader = ArrayReader()
    for count in range(1, 200):
        sent = [rows(ALIKE["label first"], count)] * 20
        assert reader.read(payload(*sent)) is not None
    assert len(reader._templates) <= 32


@pytest.mark.parametrize("iteration", [None, 1], ids=["next_batch", "as_dataset"])
def test_the_inbox_hands_out_rows_that_may_be_changed(iteration: int | None) -> None:
    inbox = Inbox(ByteBudget(1 << 20), on_consumed=lambda *_: None)
    stream = Stream(seq=0, partition=0, attempt=0, infer=False, on_drained=lambda _: None)
    sent = rows(ALIKE["array and label"], 50)
    data = payload(sent[:25], sent[25:])
    inbox.put(stream, Kind.RAW_PICKLE, data, len(data))
    if iteration is not None:
        inbox.begin_iteration()
    taken = inbox.take(100, iteration=iteration)
    assert isinstance(taken, Piece)
    found = taken.block.rows(taken.start, taken.stop)
    assert all(map(same, sent, found))
    found[0][0][:] = 0
    assert same(found[1], sent[1])
    assert same(decode(Kind.RAW_PICKLE, data).rows(0, 1)[0], sent[0])
