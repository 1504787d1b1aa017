"""What is called when a module has been imported, and the rule that older TensorFlows get for tf_keras."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tfos_core import autograph
from tfos_core.after_import import after_import

NAMES = ("fake_first", "fake_second")
#: As TensorFlow's module has it.
CONFIG = """
import enum
import fake_second
class Action(enum.Enum):
    NONE = 0
    DO_NOT_CONVERT = 2
class DoNotConvert:
    def __init__(self, prefix):
        self._prefix = prefix
    def get_action(self, module):
        name = module.__name__
        return Action.DO_NOT_CONVERT if name == self._prefix or name.startswith(self._prefix + ".") else Action.NONE
CONVERSION_RULES = (DoNotConvert("keras"),)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "fake_first.py").write_text(CONFIG)
    (tmp_path / "fake_second.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield tmp_path
    for name in NAMES:
        sys.modules.pop(name, None)


def test_each_module_is_told_once_right_after_it_has_run(modules: Path) -> None:
    told: list[str] = []
    for name in NAMES:
        after_import(name, lambda module: told.append(module.__name__))
    importlib.import_module("fake_first")  # which imports the second
    importlib.import_module("fake_second")
    assert told == ["fake_second", "fake_first"]


def test_a_module_that_is_there_is_told_at_once(modules: Path) -> None:
    module, told = importlib.import_module("fake_second"), []
    after_import("fake_second", told.append)
    assert told == [module]


def test_tf_keras_is_left_alone_by_a_tensorflow_that_does_not_know_it(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograph, "_MODULE", "fake_first")
    autograph.leave_legacy_keras_alone()
    config = importlib.import_module("fake_first")
    inner = ModuleType("tf_keras.src.engine.training")
    assert [rule.get_action(inner).name for rule in config.CONVERSION_RULES] == ["NONE", "DO_NOT_CONVERT"]
    autograph.leave_legacy_keras_alone()
    assert len(config.CONVERSION_RULES) == 2
