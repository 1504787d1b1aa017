"""The moment a program enters `Server.join()` is told, whoever made the server."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tfos_core import serving

NAME = "fake_server_lib"
SOURCE = """
class Server:
    calls = 0
    def join(self):
        '''Blocks for ever, in TensorFlow.'''
        type(self).calls += 1
"""


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was told; the fake stands for TensorFlow's module."""
    (tmp_path / f"{NAME}.py").write_text(SOURCE)
    monkeypatch.setattr(serving, "_MODULE", NAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield []
    sys.modules.pop(NAME, None)


def load() -> ModuleType:
    return importlib.import_module(NAME)


def watch(joined: list[str]) -> None:
    serving.watch_join(lambda: joined.append(f"after {load().Server.calls} calls"))


def test_join_is_told_before_it_blocks_and_still_called(joined: list[str]) -> None:
    watch(joined)
    assert NAME not in sys.modules, "watching imports nothing"
    server = load().Server()
    assert joined == []
    server.join()
    assert joined == ["after 0 calls"]
    assert server.calls == 1


def test_a_module_that_is_there_already_is_watched_too(joined: list[str]) -> None:
    load()
    watch(joined)
    load().Server().join()
    assert joined == ["after 0 calls"]


def test_join_in_another_thread_says_nothing_about_the_function(joined: list[str]) -> None:
    watch(joined)
    server = load().Server()
    thread = threading.Thread(target=server.join)
    thread.start()
    thread.join(10)
    assert joined == []
    assert server.calls == 1


def test_the_finder_steps_back_after_its_one_module(joined: list[str]) -> None:
    before = list(sys.meta_path)
    watch(joined)
    load()
    assert sys.meta_path == before
    assert load().Server.join.__doc__ == "Blocks for ever, in TensorFlow."


def test_tensorflow_defines_its_server_where_it_is_looked_for() -> None:
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    assert found.submodule_search_locations
    file = Path(found.submodule_search_locations[0], *serving._MODULE.split(".")[1:]).with_suffix(".py")
    assert '@tf_export("distribute.Server", v1=["distribute.Server", "train.Server"])\n' in file.read_text()
