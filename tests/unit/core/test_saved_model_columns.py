"""Columns to tensors and back: bindings, coercion and results, without Spark and TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.errors import ConfigError
from tfos_core.saved_model.binding import Binding, InputBinding, OutputBinding, bind
from tfos_core.saved_model.coerce import Piece, prepare
from tfos_core.saved_model.results import to_column, wrong_rows
from tfos_core.saved_model.settings import InferenceSettings
from tfos_core.saved_model.signature import Signature, TensorSpec
from tfos_core.saved_model.types import column_type


def spec(*shape: int | None, dtype: str = "float32", name: str = "x") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def coerced(values: list[Any], kind: Any, target: TensorSpec) -> tuple[list[Piece], dict[int, str]]:
    batch = pa.record_batch([pa.array(values, kind)], names=["c"])
    return prepare(batch, [InputBinding(spec=target, columns=("c",))])


def array_of(values: list[Any], kind: Any, target: TensorSpec) -> Any:
    (piece,), rejected = coerced(values, kind, target)
    assert rejected == {}
    return piece.arrays["x"]


LISTS = pa.list_(pa.float64())


@pytest.mark.parametrize(
    ("values", "kind", "target", "expected"),
    [
        ([1, 2], pa.int64(), spec(None), [1, 2]),
        ([1, 2], pa.int64(), spec(None, 1), [[1], [2]]),
        ([[1.0], [2.0]], LISTS, spec(None), [1, 2]),
        ([[1.0, 2, 3, 4]], LISTS, spec(None, 2, 2), [[[1, 2], [3, 4]]]),
        ([[[1.0, 2], [3, 4]]], pa.list_(LISTS), spec(None, 2, 2), [[[1, 2], [3, 4]]]),
        ([[[1.0, 2], [3, 4]]], pa.list_(LISTS), spec(None, 4), [[1, 2, 3, 4]]),
        ([[1.0, 2, 3, 4]], LISTS, spec(None, None, 2), [[[1, 2], [3, 4]]]),
        ([[1.0, 2]], LISTS, spec(None, None), [[1, 2]]),
        ([[1.0, 2]], pa.list_(pa.float64(), 2), spec(None, 2), [[1, 2]]),
        ([True, False], pa.bool_(), spec(None), [1, 0]),
        ([1, 0], pa.int32(), spec(None, dtype="bool"), [True, False]),
        ([1.0, -3.0], pa.float64(), spec(None, dtype="int32"), [1, -3]),
    ],
)
def test_a_row_gets_the_shape_and_type_of_the_input(values: list[Any], kind: Any, target: TensorSpec, expected: list[Any]) -> None:
    array = array_of(values, kind, target)
    assert array.dtype == target.dtype
    assert array.tolist() == expected


def test_decimals_are_numbers_and_bytes_stay_bytes() -> None:
    from decimal import Decimal

    assert array_of([Decimal("1.25")], pa.decimal128(5, 2), spec(None)).tolist() == [1.25]
    assert array_of([b"\xff\x00"], pa.binary(), spec(None, dtype="string")).tolist() == [b"\xff\x00"]
    assert array_of(["\u00e9"], pa.string(), spec(None, dtype="string")).tolist() == ["\u00e9".encode()]


def test_floats_of_the_right_type_are_not_copied() -> None:
    column = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
    (piece,), _ = prepare(pa.record_batch([column], names=["c"]), [InputBinding(spec=spec(None, 2), columns=("c",))])
    address = column.values.buffers()[1].address
    assert piece.arrays["x"].__array_interface__["data"][0] == address


@pytest.mark.parametrize(
    ("values", "kind", "target", "reason"),
    [
        ([1.0, None], pa.float64(), spec(None), "is null"),
        ([[1.0, 2.0], None], LISTS, spec(None, 2), "is null"),
        ([[1.0, 2.0], [1.0, None]], LISTS, spec(None, 2), "has a null in its list"),
        ([[1.0, 2.0], [1.0]], LISTS, spec(None, 2), "has 1 values, but the input x (float32, [?, 2]) takes 2 values"),
        ([[[1.0], [2.0]], [[1.0], []]], pa.list_(LISTS), spec(None, 2), "has lists of different lengths"),
        ([[[1.0], [2.0]], [[1.0], None]], pa.list_(LISTS), spec(None, 2), "has a null in its lists"),
        ([1, 300], pa.int32(), spec(None, dtype="uint8"), "has a value that uint8 can not hold"),
        ([1, -1], pa.int64(), spec(None, dtype="uint64"), "has a value that uint64 can not hold"),
        ([1.0, 1.5], pa.float64(), spec(None, dtype="int64"), "has a value that int64 can not hold"),
        ([1.0, float("nan")], pa.float64(), spec(None, dtype="int32"), "has a value that int32 can not hold"),
        ([1.0, 2.0**63], pa.float64(), spec(None, dtype="int64"), "has a value that int64 can not hold"),
        ([1.0, 1e300], pa.float64(), spec(None), "has a value that float32 can not hold"),
        ([1, 2], pa.int32(), spec(None, dtype="bool"), "has a value that bool can not hold"),
        ([[1, 2], [1, 2**40]], pa.list_(pa.int64()), spec(None, 2, dtype="int32"), "has a value that int32 can not hold"),
    ],
)
def test_the_second_row_is_rejected_with_the_reason_and_the_first_is_not(
    values: list[Any], kind: Any, target: TensorSpec, reason: str
) -> None:
    pieces, rejected = coerced(values, kind, target)
    assert rejected == {1: f"column 'c' {reason}"}
    assert [piece.rows.tolist() for piece in pieces] == [[0]]


def test_infinities_are_numbers() -> None:
    assert array_of([float("inf"), float("nan")], pa.float64(), spec(None))[0] == np.inf


def test_a_slice_of_a_batch_is_taken_for_what_it_is() -> None:
    batch = pa.record_batch([pa.array([[float(i)] * 2 for i in range(10)], LISTS)], names=["c"]).slice(3, 4)
    (piece,), _ = prepare(batch, [InputBinding(spec=spec(None, 2), columns=("c",))])
    assert piece.arrays["x"][:, 0].tolist() == [3, 4, 5, 6]


def test_several_columns_go_side_by_side_in_their_order() -> None:
    batch = pa.record_batch([pa.array([1, 2]), pa.array([[3.0, 4.0], [5.0, 6.0]])], names=["a", "b"])
    (piece,), rejected = prepare(batch, [InputBinding(spec=spec(None, 3), columns=("b", "a"))])
    assert piece.arrays["x"].tolist() == [[3, 4, 1], [5, 6, 2]]
    assert rejected == {}


def test_every_row_of_a_wrong_length_is_rejected_and_nothing_is_left() -> None:
    pieces, rejected = coerced([[1.0], [2.0]], LISTS, spec(None, 784))
    assert (pieces, set(rejected)) == ([], {0, 1})


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats(-10, 10, width=32)), max_size=3)), max_size=30))
def test_every_row_is_in_one_piece_or_rejected_and_keeps_its_values(values: list[Any]) -> None:
    pieces, rejected = coerced(values, LISTS, spec(None, None))
    seen = [int(row) for piece in pieces for row in piece.rows]
    assert seen == sorted(seen)
    assert sorted([*seen, *rejected]) == list(range(len(values)))
    for piece in pieces:
        for row, array in zip(piece.rows, piece.arrays["x"], strict=True):
            assert array.tolist() == values[row]


NUMBER = TensorSpec(name="x", dtype="float32", shape=(None, 3))
OUT = (TensorSpec(name="y", dtype="float32", shape=(None, 2)), TensorSpec(name="loss", dtype="float32", shape=()))


def bound(columns: dict[str, Any], inputs: tuple[TensorSpec, ...] = (NUMBER,), **settings: Any) -> Binding:
    signature = Signature(inputs=inputs, outputs=OUT)
    return bind(columns, signature, InferenceSettings(export_dir="m", **{"output_mapping": {"y": "y"}} | settings))


def test_without_a_mapping_names_decide_or_the_only_column_that_is_not_kept() -> None:
    columns = {"x": LISTS, "id": pa.int64()}
    assert bound(columns).inputs[0].columns == ("x",)
    assert bound({"pixels": LISTS, "id": pa.int64()}, keep=("id",)).inputs[0].columns == ("pixels",)
    with pytest.raises(ConfigError, match="are not named like the inputs"):
        bound({"pixels": LISTS, "id": pa.int64()})


@pytest.mark.parametrize(
    ("kind", "inputs", "text"),
    [
        (pa.date32(), (NUMBER,), "dates and times"),
        (pa.map_(pa.string(), pa.int32()), (NUMBER,), "structures"),
        (pa.string(), (NUMBER,), "takes numbers"),
        (LISTS, (TensorSpec(name="x", dtype="string", shape=(None,)),), "strings or bytes"),
        (LISTS, (TensorSpec(name="x", dtype="complex64", shape=(None,)),), "can not be made of columns"),
        (LISTS, (TensorSpec(name="x", dtype="float32", shape=()),), "one value for all rows"),
        (LISTS, (TensorSpec(name="x", dtype="float32", shape=(None,), is_dense=False),), "sparse or ragged"),
        (pa.float64(), (TensorSpec(name="x", dtype="bool", shape=(None,)),), "takes booleans"),
    ],
)
def test_what_can_never_fit_is_refused_before_anything_runs(kind: Any, inputs: tuple[TensorSpec, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        bound({"x": kind}, inputs)


def test_names_that_do_not_exist_are_told_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="'zz'") as caught:
        bound({"x": LISTS}, output_mapping={"zz": "z"})
    assert caught.value.hint == "Its outputs are y (float32, [?, 2]), loss (float32, [])."
    with pytest.raises(ConfigError, match="one value for all rows") as caught:
        bound({"x": LISTS}, output_mapping={})
    assert "y (float32, [?, 2])" in str(caught.value.hint)


def test_a_column_appears_once() -> None:
    with pytest.raises(ConfigError, match="both a kept column and an output"):
        bound({"x": LISTS, "y": LISTS}, keep=("y",))


def test_inputs_of_a_fixed_batch_have_to_agree() -> None:
    two = (TensorSpec(name="x", dtype="float32", shape=(4,)), TensorSpec(name="z", dtype="float32", shape=(8,)))
    assert bound({"x": pa.float64()}, two[:1]).fixed_rows == 4
    with pytest.raises(ConfigError, match="different numbers of rows"):
        bound({"x": pa.float64(), "z": pa.float64()}, two)


def out(*shape: int | None, dtype: str = "float32", binary: bool = False) -> OutputBinding:
    target = spec(None, *shape, dtype=dtype, name="y")
    return OutputBinding(spec=target, column="y", type=column_type(target, binary=binary))


@pytest.mark.parametrize(
    ("binding", "array"),
    [
        (out(), np.array([1.0, 2.0], "f4")),
        (out(2), np.array([[1, 2], [3, 4]], "f4")),
        (out(None, 3), np.arange(12, dtype="f4").reshape(2, 2, 3)),
        (out(2, 2, 2), np.arange(16, dtype="f4").reshape(2, 2, 2, 2)),
        (out(0), np.zeros((2, 0), "f4")),
        (out(dtype="uint8"), np.array([255, 0], "u1")),
        (out(dtype="float16"), np.array([0.5, 1], "f2")),
        (out(dtype="bool"), np.array([True, False])),
        (out(dtype="uint64"), np.array([1, 2], "u8")),
    ],
)
def test_results_become_columns_of_their_shape(binding: OutputBinding, array: Any) -> None:
    column = to_column(binding, [array[:1], array[1:]])
    assert column.type == binding.type
    assert column.to_pylist() == array.tolist()
    assert to_column(binding, []).type == binding.type


def test_calls_with_results_of_different_sizes_make_one_column() -> None:
    column = to_column(out(None), [np.ones((2, 1), "f4"), np.ones((1, 3), "f4")])
    assert column.to_pylist() == [[1.0], [1.0], [1.0, 1.0, 1.0]]


def test_text_is_text_and_bytes_are_bytes() -> None:
    values = np.array([b"a", b"\xff"], dtype=object)
    assert to_column(out(dtype="string", binary=True), [values]).to_pylist() == [b"a", b"\xff"]
    with pytest.raises(pa.ArrowInvalid):
        to_column(out(dtype="string"), [values])
    assert list(wrong_rows(out(dtype="string"), values)) == [1]
    assert "binary_outputs" in wrong_rows(out(dtype="string"), values)[1]


def test_what_spark_can_not_count_is_told() -> None:
    assert list(wrong_rows(out(dtype="uint64"), np.array([1, 2**63], "u8"))) == [1]
