"""Errors cross process boundaries: every class survives pickle with all its fields."""

from __future__ import annotations

import importlib
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

from tfos_core.errors import TfosError

ROOT = Path(__file__).parents[3]


def all_errors() -> list[type[TfosError]]:
    for package in ("tfos_core", "tfos_cli"):
        for file in sorted((ROOT / package).rglob("*.py")):
            if "(TfosError" in (text := file.read_text(encoding="utf-8")) or "Error)" in text:
                name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                if not name.endswith("__main__"):
                    importlib.import_module(name)
    found: list[type[TfosError]] = []
    waiting = [TfosError]
    while waiting:
        found.append(cls := waiting.pop())
        waiting += [sub for sub in cls.__subclasses__() if sub not in found]
    return sorted(set(found), key=lambda cls: f"{cls.__module__}.{cls.__qualname__}")


def filled(cls: type[TfosError]) -> TfosError:
    """An instance whose every argument differs from its default."""
    values: list[Any] = []
    for position, parameter in enumerate(inspect.signature(cls).parameters.values()):
        default = parameter.default
        if isinstance(default, bool):
            values.append(not default)
        elif isinstance(default, int):
            values.append(default + 100 + position)
        elif isinstance(default, tuple):
            values.append((f"{parameter.name} a", f"{parameter.name} b"))
        else:
            values.append(f"some {parameter.name}")
    return cls(*values)


def test_there_are_errors_of_both_packages() -> None:
    assert {cls.__module__.partition(".")[0] for cls in all_errors()} == {"tfos_core", "tfos_cli"}


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_every_error_can_be_made_without_arguments_and_survives_pickle(cls: type[TfosError]) -> None:
    for error in (cls(), filled(cls)):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls
        assert copy.args == error.args
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)
        assert copy.hint == error.hint


def test_a_message_is_what_the_error_shows() -> None:
    error = TfosError("2 of 4 nodes did not register within 600 s", "Look at the logs of worker:1.")
    assert str(error) == "2 of 4 nodes did not register within 600 s"
    assert error.hint == "Look at the logs of worker:1."
