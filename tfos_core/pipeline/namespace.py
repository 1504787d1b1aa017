"""What a training function gets as its arguments."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tfos_core.errors import ConfigError

__all__ = ("Namespace",)


class Namespace:
    """Arguments as attributes, whatever form they had.

    >>> Namespace({"rate": 0.1}).rate
    0.1
    >>> Namespace(["--rate", "0.1"]).argv
    ['--rate', '0.1']

    Args:
        d: a mapping, a namespace of `argparse` or of this class, or a list of strings, which becomes `argv`.

    Raises:
        ConfigError: something else.
    """

    argv: list[str] | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, d: Any) -> None:
        if isinstance(d, list | tuple):
            self.argv = list(d)
        elif isinstance(d, Mapping):
            if wrong := [name for name in d if not isinstance(name, str)]:
                raise ConfigError(f"arguments have names, and {wrong[0]!r} is not a string")
            vars(self).update(d)
        elif isinstance(d, Namespace | argparse.Namespace | types.SimpleNamespace):
            vars(self).update(vars(d))
        else:
            raise ConfigError(
                f"{d!r} can not be the arguments of a function", "Give a dict, an argparse.Namespace, or a list of strings."
            )

    def __iter__(self) -> Iterator[str]:
        """The strings of `argv` if there is one, else the names."""
        return iter(self.argv if self.argv is not None else vars(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return self.argv == other
        if isinstance(other, Namespace | argparse.Namespace | types.SimpleNamespace):
            return vars(self) == vars(other)
        return NotImplemented

    def __repr__(self) -> str:
        if self.argv is not None:
            return repr(self.argv)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in sorted(vars(self).items()))})"
