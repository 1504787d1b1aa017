"""Calls something when a module has been imported, by whomever and whenever; imports nothing itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

__all__ = ("after_import",)

Action = Callable[[ModuleType], None]


def after_import(name: str, act: Action) -> None:
    """Call `act` with the module: now when it is there already, else right after it has run."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Steps in once, for the one module, and leaves the finding of it to the others."""

    def __init__(self, name: str, act: Action) -> None:
        self._name = name
        self._act = act

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._act)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, act: Action) -> None:
        super().__init__(name, path)
        self._act = act

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._act(module)
