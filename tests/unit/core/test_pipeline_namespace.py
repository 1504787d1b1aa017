"""Arguments of training functions, in every form that programs of 2022 give them."""

from __future__ import annotations

import argparse
import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core.errors import ConfigError
from tfos_core.pipeline import Namespace

VALUES = {"rate": 0.5, "layers": [1, 2], "names": {"a": "b"}}


@pytest.mark.parametrize("form", [dict, argparse.Namespace, SimpleNamespace])
def test_named_arguments_become_attributes(form: Any) -> None:
    made = Namespace(form(**VALUES))
    assert (made.rate, made.layers, made.names) == (0.5, [1, 2], {"a": "b"})
    assert "rate" in made
    assert "other" not in made
    assert list(made) == list(VALUES)
    assert made.argv is None


def test_a_list_is_what_the_command_line_was() -> None:
    made = Namespace(["--rate", "0.5"])
    assert made.argv == ["--rate", "0.5"]
    assert list(made) == ["--rate", "0.5"]
    assert made == ["--rate", "0.5"]
    assert repr(made) == "['--rate', '0.5']"


def test_a_copy_is_equal_and_independent() -> None:
    first = Namespace(VALUES)
    second = Namespace(first)
    assert first == second == copy.copy(first) == pickle.loads(pickle.dumps(first))
    second.rate = 1.0
    assert first != second
    assert first.rate == 0.5
    assert repr(Namespace({"b": 1, "a": "x"})) == "Namespace(a='x', b=1)"


@pytest.mark.parametrize("wrong", [None, 5, "--rate", {1: "one"}])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="argument"):
        Namespace(wrong)
