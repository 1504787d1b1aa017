"""`as_dataset` over NumPy arrays in pickled batches: every row once and in order, in batches that are the program's own."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfos_core.feed.blocks import decode
from tfos_core.feed.dataset import BatchSource
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Stream
from tfos_core.feed.pickled_arrays import ArrayReader
from tfos_core.feed.scattered import Scattered
from tfos_core.feed.wire import Kind

Array = np.ndarray[Any, Any]
#: Of a pickled batch, of a block, and how many blocks: no multiple of a batch of the dataset.
ROWS, BATCHES, BLOCKS = 32, 3, 4
#: Floats of an array: of the large ones, and of those that are copied when a block is read.
LARGE, SMALL = 300, 5


def payload(block: int, width: int) -> Array:
    """Pickled batches of (array, label) with their lengths, as Spark has them."""
    pickled = []
    for batch in range(BATCHES):
        first = (block * BATCHES + batch) * ROWS
        rows = [(np.arange(width, dtype=np.float32) + row, row % 10) for row in range(first, first + ROWS)]
        pickled.append(pickle.dumps(rows, 5))
    return np.frombuffer(bytearray(b"".join(struct.pack("!I", len(data)) + data for data in pickled)), np.uint8)


def feed(hub: FeedHub, width: int) -> list[Array]:
    """All blocks, as one partition that is an epoch."""
    payloads = [payload(block, width) for block in range(BLOCKS)]
    stream = Stream(seq=0, partition=0, attempt=0, infer=False, on_drained=lambda _: None)
    hub.inbox.end_epochs_before(0)
    hub.first_block(0, 0, lambda: decode(Kind.RAW_PICKLE, payloads[0]))
    for data in payloads:
        assert hub.budget.reserve(len(data))
        hub.inbox.put(stream, Kind.RAW_PICKLE, data, len(data))
    hub.inbox.finish(stream)
    hub.on_message({"op": "feed.end", "seq": 0, "final": True, "spec": None})
    return payloads


def source(hub: FeedHub, mapping: dict[str, str] | None) -> BatchSource:
    spec = hub.await_spec()
    assert spec is not None
    if mapping is not None:
        spec = {"form": "dict", "tensors": [{**tensor, "name": name} for tensor, name in zip(spec["tensors"], "xy", strict=True)]}
    return BatchSource(hub=hub, batch_size=50, spec=spec, mapping=mapping, all_epochs=False, drop_remainder=False)


def batches(made: BatchSource) -> list[tuple[Array, Array]]:
    return [tuple(element.values()) if isinstance(element, dict) else element for element in made()]


def stacked(made: BatchSource) -> list[tuple[Array, Array]]:
    stacks = [tuple(element.values()) if isinstance(element, dict) else element for element in made.stacks()]
    return [(features[number], labels[number]) for features, labels in stacks for number in range(len(features))]


@pytest.mark.parametrize("width", [LARGE, SMALL])
@pytest.mark.parametrize("mapping", [None, {"features": "x", "label": "y"}], ids=["by position", "mapped"])
@pytest.mark.parametrize("way", [batches, stacked], ids=["one by one", "stacks"])
def test_every_row_is_in_one_batch_and_in_order(
    hub: FeedHub, width: int, mapping: dict[str, str] | None, way: Callable[[BatchSource], list[tuple[Array, Array]]]
) -> None:
    payloads = feed(hub, width)
    before = [data.tobytes() for data in payloads]
    found = way(source(hub, mapping))
    count = ROWS * BATCHES * BLOCKS
    assert [len(features) for features, _ in found] == [50] * (count // 50) + [count % 50]
    features, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert features.dtype == np.float32
    assert np.array_equal(features, np.arange(width, dtype=np.float32) + np.arange(count, dtype=np.float32)[:, None])
    assert np.array_equal(labels, np.arange(count) % 10)
    for batch, _ in found:
        batch[:] = -1
    assert [data.tobytes() for data in payloads] == before, "a batch is the program's own, and no view of what arrived"


def test_large_arrays_wait_where_they_arrived_and_small_ones_do_not_keep_a_block_in_memory() -> None:
    large, small = payload(0, LARGE), payload(0, SMALL)
    read = ArrayReader().read(large)
    assert read is not None
    assert isinstance(read.columns[0], Scattered)
    assert all(np.shares_memory(part, large) for part in read.columns[0].parts)
    read = ArrayReader().read(small)
    assert read is not None
    assert not np.shares_memory(read.columns[0], small)


def test_rows_that_a_program_takes_are_its_own() -> None:
    data = payload(0, LARGE)
    read = ArrayReader().read(data)
    assert read is not None
    rows = read.rows(0, len(read))
    assert not any(np.shares_memory(features, data) for features, _ in rows)
    assert all(np.array_equal(features, np.arange(LARGE) + row) for row, (features, _) in enumerate(rows))
