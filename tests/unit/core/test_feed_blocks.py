"""Rows into blocks and back, and into arrays."""

from __future__ import annotations

import collections
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.errors import FeedError
from tfos_core.feed.blocks import ArrowBlock, Block, decode, decode_schema, take_columns
from tfos_core.feed.elements import arrays, describe, describe_mapped, mapped_arrays
from tfos_core.feed.packing import Packed, pack_arrow, pack_frames, pack_list, pack_rows
from tfos_core.feed.wire import Kind

Point = collections.namedtuple("Point", "y x")


def payload(packed: Packed) -> Any:
    data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in packed.buffers)
    received = np.empty(len(data), dtype=np.uint8)
    received[:] = np.frombuffer(data, dtype=np.uint8)
    return received


def received(packed: Packed, schema: Any = None) -> Block:
    return decode(packed.kind, payload(packed), schema)


def block_of(rows: list[Any]) -> Block:
    return received(pack_list(rows))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(), st.lists, max_leaves=5
)


@given(st.lists(st.tuples(values, values) | values, min_size=1))
def test_any_python_rows_come_back_equal(rows: list[Any]) -> None:
    block = block_of(rows)
    assert block.rows(0, len(block)) == rows
    assert block.rows(1, len(block)) == rows[1:]


def test_rows_with_arrays_travel_as_columns() -> None:
    rows = [(np.full(3, i, dtype=np.float32), i, f"s{i}", np.float64(i)) for i in range(10)]
    packed = pack_list(rows)
    assert packed.kind is Kind.COLUMNS
    back = received(packed).rows(0, 10)
    assert all((a[0] == b[0]).all() and a[1:] == b[1:] for a, b in zip(back, rows, strict=True))
    assert {tuple(map(type, row)) for row in back} == {(np.ndarray, int, str, np.float64)}


@pytest.mark.parametrize(
    "rows",
    [
        [(np.zeros(2), 1), (np.zeros(3), 1)],
        [(np.zeros(2), 1), (np.zeros(2, dtype=np.float32), 1)],
        [(np.zeros(2), 1), (np.zeros(2), 1, 2)],
        [(np.zeros(2), 1), [np.zeros(2), 1]],
        [np.array([1, None], dtype=object)],
        [np.zeros(2), None],
    ],
)
def test_arrays_that_differ_keep_their_own_type_and_shape(rows: list[Any]) -> None:
    back = block_of(rows).rows(0, len(rows))
    assert repr(back) == repr(rows)


def test_frames_are_coalesced_and_counted_by_the_receiver() -> None:
    frames = [pickle.dumps(list(range(i, i + 10))) for i in range(0, 100, 10)]
    packed = list(pack_frames(frames, 1 << 20, clock=lambda: 0.0))
    assert [block.kind for block in packed] == [Kind.RAW_PICKLE]
    assert received(packed[0]).rows(0, 100) == list(range(100))
    assert len(list(pack_frames(frames, 1, clock=lambda: 0.0))) == 10


def test_frames_that_come_slowly_are_not_held_back() -> None:
    times = iter(range(100))
    assert len(list(pack_frames([b"x"] * 5, 1 << 20, clock=lambda: float(next(times))))) == 5


def test_blocks_of_rows_follow_the_bytes_of_a_row() -> None:
    sizes = [packed.rows for packed in pack_rows([bytes([i % 256]) * (1000 + i) for i in range(300)], 10_000, clock=lambda: 0.0)]
    assert sum(sizes) == 300
    assert max(sizes) <= 10


def test_rows_that_come_slowly_are_not_held_back() -> None:
    times = iter(range(1000))
    sizes = [packed.rows for packed in pack_rows(range(20), 1 << 20, clock=lambda: float(next(times)))]
    assert sizes[0] == 8
    assert set(sizes[1:]) == {1}


def arrow_block(table: pa.Table, block_bytes: int = 1 << 20) -> list[ArrowBlock]:
    schema, *batches = pack_arrow(table.to_batches(), block_bytes)
    assert schema.kind is Kind.ARROW_SCHEMA
    return [received(batch, decode_schema(payload(schema))) for batch in batches]  # type: ignore[misc]


def test_large_record_batches_are_cut() -> None:
    table = pa.table({"a": list(range(1000)), "s": ["x" * 100] * 1000})
    blocks = arrow_block(table, 10_000)
    assert len(blocks) > 5
    assert [row[0] for block in blocks for row in block.rows(0, len(block))] == list(range(1000))


@pytest.mark.parametrize("rows", [1, 999, 1000])
def test_messages_of_record_batches_are_those_of_arrow(rows: int) -> None:
    columns = {"a": list(range(1000)), "s": ["x", None] * 500, "l": [[1.0], []] * 500, "t": [{"k": 1}] * 1000}
    (batch,) = pa.table(columns).to_batches()
    _, *packed = pack_arrow([batch, batch.slice(5, 0), batch], batch.nbytes * rows // 1000)
    assert sum(block.rows for block in packed) == 2000
    start = 0
    for block in packed:
        assert payload(block).tobytes() == batch.slice(start, block.rows).serialize().to_pybytes()
        start = (start + block.rows) % 1000


def test_values_of_record_batches_are_not_copied_into_messages() -> None:
    values = pa.array(np.arange(10_000.0))
    _, packed = pack_arrow([pa.record_batch({"a": values})], 1 << 20)
    addresses = [buffer.address for buffer in packed.buffers if isinstance(buffer, pa.Buffer)]
    assert values.buffers()[1].address in addresses


def test_rows_of_record_batches_are_made_some_at_a_time_in_any_order() -> None:
    expected = [(i, f"{i}", None if i == 20_000 else i / 2) for i in range(30_000)]
    (block,) = arrow_block(pa.table(dict(zip("asn", map(list, zip(*expected, strict=True)), strict=True))), 1 << 30)
    places = [(0, 10), (10, 4090), (4090, 4110), (29_000, 40_000), (5, 20_000), (7, 7), (19_990, 20_010), (30_000, 30_001)]
    for start, stop in places:
        assert block.rows(start, stop) == expected[start:stop]


@pytest.mark.parametrize("taken", [2, 3, 100])
def test_record_batches_that_were_sent_are_let_go(taken: int) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(5):
            yield pa.record_batch({"a": pa.array(range(start, start + 100_000))})

    before = pa.total_allocated_bytes()
    for _ in range(3):
        packed = pack_arrow(batches(), 1 << 20)
        assert [block.rows for block in itertools.islice(packed, taken)][-1] > 0
        del packed
    assert pa.total_allocated_bytes() == before


def test_lists_of_numbers_arrive_without_a_copy() -> None:
    table = pa.table({"a": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))})
    (block,) = arrow_block(table)
    (first,), (second,) = block.rows(0, 2)
    assert first.base is not None
    assert first.dtype == np.float32
    assert second.tolist() == [3.0, 4.0]


def test_lists_with_nulls_are_lists() -> None:
    (block,) = arrow_block(pa.table({"a": [[1, None], None, []]}))
    assert block.rows(0, 3) == [([1, None],), (None,), ([],)]


def test_a_frame_that_can_not_be_unpickled_names_the_module() -> None:
    data = pickle.dumps([Point(1, 2)]).replace(b"test_feed_blocks", b"nest_feed_blocks")
    with pytest.raises(FeedError, match="can not be unpickled on the node"):
        received(next(pack_frames([data], 1)))


def test_columns_are_found_by_name_where_rows_have_names() -> None:
    assert take_columns(block_of([Point(1, 2)]), 0, 1, ("x", "y")) == [(2,), (1,)]
    assert take_columns(block_of([{"x": 2, "y": 1}]), 0, 1, ("x", "y")) == [[2], [1]]
    assert take_columns(block_of([(1, 2)]), 0, 1, ("x", "y")) == [(1,), (2,)]
    with pytest.raises(FeedError, match="'z', but the rows have the columns"):
        take_columns(arrow_block(pa.table({"a": [1]}))[0], 0, 1, ("z",))


@pytest.mark.parametrize(
    ("rows", "form", "tensors"),
    [
        ([1.5, 2.5], "single", [("float32", [])]),
        ([[1.0, 2.0], [3.0, 4.0]], "single", [("float32", [2])]),
        ([1, 2], "single", [("int64", [])]),
        (["a", "bc"], "single", [("string", [])]),
        ([([1.0, 2.0], 3), ([1.0, 2.0], 4)], "tuple", [("float32", [2]), ("int64", [])]),
        ([(np.zeros((2, 2)), True)], "tuple", [("float64", [2, 2]), ("bool", [])]),
        ([{"b": 1, "a": 2.0}], "dict", [("float32", []), ("int64", [])]),
    ],
)
def test_the_element_follows_the_rows(rows: list[Any], form: str, tensors: list[Any]) -> None:
    spec = describe(block_of(rows))
    assert spec["form"] == form
    assert [(tensor["dtype"], tensor["shape"]) for tensor in spec["tensors"]] == tensors


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[1], [1, 2]], "differ in length"),
        ([1, None], "holds nulls"),
        ([(1,), (1, 2)], "tuples of different lengths"),
        ([object], "holds"),
    ],
)
def test_rows_that_fit_no_tensor_say_why(rows: list[Any], problem: str) -> None:
    assert problem in describe(block_of(rows))["problem"]


def test_dataframe_columns_keep_their_arrow_types() -> None:
    table = pa.table({"x": pa.array([[1.0], [2.0]], pa.list_(pa.float32())), "y": pa.array([1, 2], pa.int32())})
    (block,) = arrow_block(table)
    spec = describe(block)
    assert [(tensor["name"], tensor["dtype"], tensor["shape"]) for tensor in spec["tensors"]] == [
        ("x", "float32", [1]),
        ("y", "int32", []),
    ]
    features, labels = arrays(block, 1, 2)
    assert features.tolist() == [[2.0]]
    assert labels.tolist() == [2]
    mapped = describe_mapped(spec, {"y": "label"})
    assert [tensor["name"] for tensor in mapped["tensors"]] == ["label"]
    assert mapped_arrays(block, 0, 2, {"y": "label"})[0].tolist() == [1, 2]


def test_a_null_in_a_tensor_column_says_how_to_fill_it() -> None:
    (block,) = arrow_block(pa.table({"x": [1, None]}))
    assert describe(block)["hint"] == "Fill or drop them in Spark first (df.na.fill)."
