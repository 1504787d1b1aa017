"""Tells when the program sits in `tf.distribute.Server.join()`: that call never returns, so others decide when the node is done.

TensorFlow is not imported here: `watch_join` waits for the program to import it.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

__all__ = ("watch_join",)

#: Where `tf.distribute.Server` (and `tf.compat.v1.train.Server`, the same class) is defined.
_MODULE = "tensorflow.python.training.server_lib"


def watch_join(joined: Callable[[], None]) -> None:
    """Call `joined` whenever the main thread enters `Server.join()`, whoever made the server.

    A server that is joined in another thread says nothing about the function that runs in the main thread.
    """
    if _MODULE in sys.modules:
        _tell_of_join(sys.modules[_MODULE], joined)
    else:
        sys.meta_path.insert(0, _Finder(joined))


class _Finder(MetaPathFinder):
    """Steps in once, for the one module, and leaves the finding of it to the others."""

    def __init__(self, joined: Callable[[], None]) -> None:
        self._joined = joined

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._joined)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, joined: Callable[[], None]) -> None:
        super().__init__(name, path)
        self._joined = joined

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _tell_of_join(module, self._joined)


def _tell_of_join(module: ModuleType, joined: Callable[[], None]) -> None:
    join = module.Server.join

    @functools.wraps(join)
    def told(server: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            joined()
        join(server)

    module.Server.join = told
