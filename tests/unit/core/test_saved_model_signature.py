"""What a SavedModel says about itself, read from the bytes that TensorFlow 2.21 wrote (tests/data/saved_models)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_core.errors import ConfigError
from tfos_core.saved_model.signature import MetaGraph, Signature, TensorSpec, choose_signature
from tfos_core.saved_model.wire import MalformedModelError, parse_saved_model

MODELS = Path(__file__).parents[2] / "data" / "saved_models"


def graphs(name: str) -> tuple[MetaGraph, ...]:
    return parse_saved_model((MODELS / f"{name}.pb").read_bytes())


def chosen(name: str, key: str = "serving_default", tags: str = "serve") -> Signature:
    return choose_signature(graphs(name), tags=frozenset(tags.split(",")), key=key, where=name)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("keras3_two", ["left (float32, [?, 4])", "right (int32, [?, 1])"], ["double (float32, [?, 2])", "sum (float32, [?, 2])"]),
        ("module_sigs", ["x (float32, [?, 784])"], ["c (int64, [?])", "p (float32, [?, 10])"]),
        ("tf1", ["x (float32, [?, 2])"], ["y (float32, [?, 1])"]),
        ("tfkeras_save", ["dense_input (float32, [?, 10])"], ["dense (float32, [?, 3])"]),
    ],
)
def test_names_types_and_shapes_are_those_of_the_model(name: str, inputs: list[str], outputs: list[str]) -> None:
    signature = chosen(name)
    assert [str(spec) for spec in signature.inputs] == inputs
    assert [str(spec) for spec in signature.outputs] == outputs


def test_a_signature_of_strings() -> None:
    (spec,) = chosen("module_sigs", "up").inputs
    assert (spec.dtype, spec.shape) == ("string", (None,))


@pytest.mark.parametrize(
    ("name", "key", "tags", "message", "hint"),
    [
        ("module_sigs", "upp", "serve", "no signature 'upp'", "It has 'serving_default', 'up'"),
        ("module_sigs", "None", "serve", "no signature 'None'", "'serving_default'"),
        ("module_sigs", "up", "train", "tag_set 'train'", "It has 'serve'"),
        ("module", "serving_default", "serve", "no signatures", "signatures=..."),
    ],
)
def test_what_there_is_not_is_told_with_what_there_is(name: str, key: str, tags: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(name, key, tags)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(ConfigError) as caught:
        chosen("module_sigs", "serving_defualt")
    assert "Did you mean 'serving_default'?" in str(caught.value.hint)


def test_what_only_tensorflow_calls_is_no_signature() -> None:
    assert [graph.signatures for graph in graphs("module")] == [{}]


def test_an_unknown_rank_and_a_scalar_are_told_apart() -> None:
    assert str(TensorSpec(name="a", dtype="float32", shape=None)) == "a (float32, [?])"
    assert str(TensorSpec(name="a", dtype="float32", shape=())) == "a (float32, [])"


@given(st.binary(max_size=200))
def test_other_bytes_are_no_model_and_nothing_worse(data: bytes) -> None:
    try:
        parse_saved_model(data)
    except MalformedModelError:
        return


@pytest.mark.parametrize("name", ["tf1", "module_sigs"])
def test_a_model_that_was_cut_off_is_noticed(name: str) -> None:
    data = (MODELS / f"{name}.pb").read_bytes()
    for size in range(0, len(data), 97):
        with pytest.raises(MalformedModelError):
            parse_saved_model(data[:size])
