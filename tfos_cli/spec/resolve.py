"""Precedence, in one place: defaults < spec file < environment < flags, and where each value came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfos_cli.spec.errors import Problem
from tfos_cli.spec.overrides import FREE_KEYS, Origin, Setting
from tfos_cli.spec.sections import expand_shorthand
from tfos_cli.spec.yaml_source import Located

__all__ = ("Layers", "Path", "merge", "provenance")

Path = tuple[str | int, ...]


@dataclass(slots=True)
class Layers:
    """What the layers say together: plain values, and the origin of every key and list item that one of them set."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def origin_of(self, path: Path) -> Origin | None:
        """The origin of a key, or of the nearest one above it that was set."""
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None:
                return origin
        return None


def merge(*layers: Iterable[Setting]) -> Layers:
    """Apply the layers in order: a later setting replaces an earlier one of the same key, and leaves its neighbours alone."""
    merged = Layers()
    for layer in layers:
        for setting in layer:
            _apply(merged, setting)
    return merged


def provenance(dumped: Mapping[str, Any], layers: Layers) -> dict[str, str]:
    """Dotted key to `default`, `file:LINE`, `environment:NAME` or `flag`, for every leaf of a dumped spec."""
    return {
        ".".join(map(str, path)): origin.provenance if (origin := layers.origins.get(path)) else "default"
        for path in _leaves(dumped, ())
    }


def _leaves(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path


def _apply(merged: Layers, setting: Setting) -> None:
    target = merged.data
    for length in range(1, len(setting.path)):
        parent = setting.path[:length]
        value = target.get(parent[-1])
        if value is None:
            value = target[parent[-1]] = {}
        if not isinstance(value, dict):
            where, name = setting.origin.shown, ".".join(parent)
            kind = "a list" if isinstance(value, list) else "a single value"
            message = f"{'.'.join(setting.path)} can not be set, because {name} is {kind}"
            merged.problems.append(Problem(where=where, field=".".join(setting.path), message=message))
            return
        target = value
    if setting.path[-1] in target:
        for path in [path for path in merged.origins if path[: len(setting.path)] == setting.path]:
            del merged.origins[path]
    target[setting.path[-1]] = _plain(setting.value, setting.path, setting.origin, merged.origins)


def _plain(located: Located, path: Path, origin: Origin, origins: dict[Path, Origin]) -> Any:
    """Plain values; records an origin for everything below `path`, with the line of each key of a file."""
    origins[path] = origin
    value = located.value
    if len(path) == 1:
        expanded = expand_shorthand(str(path[0]), value)
        if expanded is not value:
            origins.update({(*path, key): origin for key in expanded})
            return expanded
    if isinstance(value, dict):
        return {key: _plain(item, (*path, key), _at(origin, item), origins) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, (*path, index), _at(origin, item), origins) for index, item in enumerate(value)]
    if value is not None and (path[:-1] in FREE_KEYS or _is_argv_item(path)):
        return located.text
    return value


def _is_argv_item(path: Sequence[str | int]) -> bool:
    return len(path) == 2 and path[0] == "args" and isinstance(path[1], int)


def _at(origin: Origin, item: Located) -> Origin:
    if origin.line is None:
        return origin
    file = origin.shown.rpartition(":")[0]
    return Origin(provenance=f"file:{item.line}", shown=f"{file}:{item.line}", line=item.line)
