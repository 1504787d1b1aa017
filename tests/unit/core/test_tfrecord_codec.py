"""Arrow columns to framed records and back."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfos_core.errors import ConfigError
from tfos_core.tfrecords.canonical import canonical
from tfos_core.tfrecords.decode import Decoded, Decoder
from tfos_core.tfrecords.encode import encode
from tfos_core.tfrecords.fields import RecordType, fields_of
from tfos_core.tfrecords.framing import read_blocks

UTC = datetime.UTC


def written(batch: Any, record_type: RecordType = RecordType.EXAMPLE) -> bytes:
    return encode(batch, fields_of(batch.schema, record_type), record_type).data.tobytes()


def decoded(data: bytes, schema: Any, record_type: RecordType = RecordType.EXAMPLE, block_bytes: int = 1 << 20) -> list[Decoded]:
    decoder = Decoder(fields_of(schema, record_type), record_type)
    return [decoder.decode(block) for block in read_blocks(io.BytesIO(data), block_bytes=block_bytes)]


def read(
    data: bytes, schema: Any, record_type: RecordType = RecordType.EXAMPLE, block_bytes: int = 1 << 20
) -> list[dict[str, Any]]:
    parts = decoded(data, schema, record_type, block_bytes)
    assert [part.problems for part in parts if part.problems] == []
    batches = [pa.RecordBatch.from_arrays(list(part.columns), schema=schema) for part in parts]
    return pa.Table.from_batches(batches, schema).to_pylist()


def framed(records: list[bytes]) -> bytes:
    return written(pa.record_batch({"byteArray": pa.array(records, pa.binary())}), RecordType.BYTE_ARRAY)


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(width=32, allow_nan=False)),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=300)),
    (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
]
NAMES = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)


@st.composite
def batches(draw: st.DrawFn, *, nested: bool = False) -> Any:
    names = draw(st.lists(NAMES, min_size=1, max_size=12, unique=True))
    rows = draw(st.integers(1, 12))
    columns = {}
    for name in names:
        leaf, values = draw(st.sampled_from(LEAVES))
        depth = draw(st.integers(0, 2 if nested else 1))
        for _ in range(depth):
            leaf, values = pa.list_(leaf), st.lists(values, max_size=5)
        content = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[name] = pa.array(content, leaf)
    return pa.record_batch(columns)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches())
def test_examples_of_any_columns_come_back_as_they_were(batch: Any) -> None:
    assert read(written(batch), batch.schema) == batch.to_pylist()


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches(nested=True))
def test_sequence_examples_of_any_columns_come_back_as_they_were(batch: Any) -> None:
    kind = RecordType.SEQUENCE_EXAMPLE
    assert read(written(batch, kind), batch.schema, kind) == batch.to_pylist()


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(1, 200))
def test_blocks_may_end_anywhere(batch: Any, block_bytes: int) -> None:
    assert read(written(batch), batch.schema, block_bytes=block_bytes) == batch.to_pylist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_bytes_that_are_no_records_are_named_and_never_crash_the_parser(records: list[bytes]) -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.list_(pa.string()), "c": pa.float32()})
    for kind in (RecordType.EXAMPLE, RecordType.SEQUENCE_EXAMPLE):
        for part in decoded(framed(records), schema, kind):
            assert len(part.offsets) + len(part.problems) == len(records)


def test_many_records_of_equal_and_of_changing_sizes_come_back() -> None:
    numbers = [*range(3000), *([7] * 3000), *[2**40 + i for i in range(3000)]]
    batch = pa.record_batch({"n": pa.array(numbers), "t": pa.array([str(i) for i in numbers])})
    assert read(written(batch), batch.schema, block_bytes=20_000) == batch.to_pylist()


def test_slices_of_a_batch_are_written_as_they_look() -> None:
    batch = pa.record_batch(
        {"s": pa.array(["a", None, "c", "d"]), "l": pa.array([[1], [2, 3], None, []]), "f": pa.array([1.0, 2.0, None, 4.0])}
    )
    part = batch.slice(1, 2)
    assert read(written(part), part.schema) == part.to_pylist()


def test_large_values_come_back() -> None:
    batch = pa.record_batch({"b": pa.array([bytes(100_000), b"x" * 70_001, b""]), "i": pa.array([[1] * 50_000, [], [2]])})
    assert read(written(batch), batch.schema) == batch.to_pylist()


def test_a_few_long_lists_among_many_short_ones_come_back() -> None:
    lists = [[str(i) * (i % 200) for i in range(3000)], *([["a", "b"]] * 50), [], ["x"] * 2000]
    batch = pa.record_batch({"t": pa.array(lists), "n": pa.array([[[i] * (i % 3) for i in range(len(each))] for each in lists])})
    kind = RecordType.SEQUENCE_EXAMPLE
    assert read(written(batch, kind), batch.schema, kind) == batch.to_pylist()


def test_fields_are_matched_by_name_and_missing_ones_are_null() -> None:
    first = pa.record_batch({"a": pa.array([1]), "b": pa.array([2])})
    second = pa.record_batch({"b": pa.array([20]), "c": pa.array([30])})
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
    assert read(written(first) + written(second), schema) == [{"a": 1, "b": 2, "c": None}, {"a": None, "b": 20, "c": 30}]


def test_columns_with_names_of_one_length_are_told_apart() -> None:
    names = [f"feature_number_{i:04d}" for i in range(300)]
    batch = pa.record_batch({name: pa.array([i, None]) for i, name in enumerate(names)})
    shuffled = pa.schema([batch.schema.field(name) for name in reversed(names)])
    assert read(written(batch), shuffled) == batch.select(list(reversed(names))).to_pylist()


# Encodings that protobuf allows and its own writers do not produce: numbers unpacked, a list in two parts, the value before the
# key, a key twice, an unknown field, the length in more bytes than needed.
UNPACKED_INTS = bytes.fromhex("0a 0d 0a 0b 0a 01 61 12 06 1a 04 08 05 08 07")
TWO_PARTS = bytes.fromhex("0a 0f 0a 0d 0a 01 61 12 08 1a 06 0a 01 05 0a 01 07")
VALUE_FIRST = bytes.fromhex("0a 0c 0a 0a 12 05 1a 03 0a 01 05 0a 01 61")
TWICE = bytes.fromhex("0a 18 0a 0a 0a 01 61 12 05 1a 03 0a 01 04 0a 0a 0a 01 61 12 05 1a 03 0a 01 05")
UNKNOWN_FIELD = bytes.fromhex("0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 05 50 01")
LONG_LENGTH = bytes.fromhex("0a 8c 00 0a 0a 0a 01 61 12 05 1a 03 0a 01 05")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (UNPACKED_INTS, [5, 7]),
        (TWO_PARTS, [5, 7]),
        (VALUE_FIRST, [5]),
        (TWICE, [5]),
        (UNKNOWN_FIELD, [5]),
        (LONG_LENGTH, [5]),
    ],
)
def test_unusual_encodings_are_read_among_usual_ones(record: bytes, expected: list[int]) -> None:
    usual = pa.record_batch({"a": pa.array([[1]], pa.list_(pa.int64()))})
    data = written(usual) + framed([record]) + written(usual)
    assert read(data, usual.schema) == [{"a": [1]}, {"a": expected}, {"a": [1]}]


def test_rewriting_gives_what_the_encoder_writes() -> None:
    batch = pa.record_batch({"a": pa.array([[5, 7]])})
    assert framed([canonical(UNPACKED_INTS, sequence=False)]) == written(batch)


@pytest.mark.parametrize(
    ("value", "type_", "problem"),
    [
        ([1, 2], pa.int64(), "'x' has 2 values, but the schema says int64"),
        (["text"], pa.int64(), "'x' has bytes, but the schema says int64"),
        ([1.5], pa.string(), "'x' has floats, but the schema says string"),
        ([300], pa.int8(), "'x' has a value that can not be read as that, but the schema says int8"),
        ([b"\xff"], pa.string(), "'x' has a value that can not be read as that, but the schema says string"),
        (["1,5"], pa.decimal128(5, 2), "'x' has a value that can not be read as that, but the schema says decimal128(5, 2)"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_named_and_the_others_are_read(value: Any, type_: Any, problem: str) -> None:
    batch = pa.record_batch({"x": pa.array([value, []])})
    (part,) = decoded(written(batch), pa.schema({"x": type_}))
    assert [(found.offset, found.reason) for found in part.problems] == [(0, problem)]
    assert [column.to_pylist() for column in part.columns] == [[None]]


def test_a_missing_value_of_a_column_that_is_never_null_is_a_problem() -> None:
    batch = pa.record_batch({"x": pa.array([1, None])})
    (part,) = decoded(written(batch), pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    assert [found.reason for found in part.problems] == ["'x' is missing, but the schema says int64, which is never null"]


def test_integers_are_read_as_floats_where_the_schema_says_so() -> None:
    integers = pa.record_batch({"x": pa.array([[1, 2], [3]])})
    floats = pa.record_batch({"x": pa.array([[0.5], None], pa.list_(pa.float32()))})
    schema = pa.schema({"x": pa.list_(pa.float64())})
    assert read(written(integers) + written(floats), schema) == [{"x": [1.0, 2.0]}, {"x": [3.0]}, {"x": [0.5]}, {"x": None}]


def test_steps_with_one_value_each_are_read_as_a_flat_array() -> None:
    kind = RecordType.SEQUENCE_EXAMPLE
    batch = pa.record_batch({"tokens": pa.array([[[1], [2], [3]], [], None, [[4, 5]]])})
    (part,) = decoded(written(batch, kind), pa.schema({"tokens": pa.list_(pa.int64())}), kind)
    assert part.columns[0].to_pylist() == [[1, 2, 3], [], None]
    assert "a step without exactly one value" in part.problems[0].reason


def test_booleans_of_other_writers_are_true_unless_zero() -> None:
    batch = pa.record_batch({"b": pa.array([0, 1, 2])})
    assert read(written(batch), pa.schema({"b": pa.bool_()})) == [{"b": False}, {"b": True}, {"b": True}]


def test_decimals_are_their_digits() -> None:
    batch = pa.record_batch({"d": pa.array([Decimal("1.50"), Decimal("-0.05")])})
    assert read(written(batch), pa.schema({"d": pa.string()})) == [{"d": "1.50"}, {"d": "-0.05"}]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1, None]]), "null inside an array"),
        (pa.array([1e300]), "1e+300"),
        (pa.array([{"a": 1}]), "struct"),
        (pa.array([[[1]]]), "array of arrays"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "map"),
        (pa.array([datetime.timedelta(1)]), "duration"),
    ],
)
def test_what_a_record_can_not_hold_is_refused_with_the_column(column: Any, words: str) -> None:
    batch = pa.record_batch({"the column": column})
    with pytest.raises(ConfigError, match="'the column'") as caught:
        written(batch)
    assert words in caught.value.message
    assert caught.value.hint


def test_infinity_is_a_float_like_others() -> None:
    batch = pa.record_batch({"x": pa.array([np.inf, -np.inf])})
    assert read(written(batch), batch.schema) == [{"x": np.inf}, {"x": -np.inf}]


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="same name"):
        fields_of(pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.string())]), RecordType.EXAMPLE)


def test_a_byte_array_record_wants_one_binary_column_without_nulls() -> None:
    with pytest.raises(ConfigError, match="exactly one binary column"):
        fields_of(pa.schema({"a": pa.int64()}), RecordType.BYTE_ARRAY)
    with pytest.raises(ConfigError, match="has a null"):
        written(pa.record_batch({"a": pa.array([b"x", None])}), RecordType.BYTE_ARRAY)
