"""A resolved spec as YAML, with where each value came from as a comment: for the dry run and the run record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from tfos_cli.spec.values import is_secret_name
from tfos_cli.submit.command import HIDDEN
from tfos_core.shim.redaction import hide_url_passwords

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("resolved_yaml", "visible_spec")

_COMMENT_COLUMN = 48


def visible_spec(resolved: ResolvedSpec) -> dict[str, Any]:
    """The spec as plain values, where texts whose names say that they are secret are hidden."""
    visible: dict[str, Any] = _without_secrets(resolved.spec.to_dict())
    return visible


def resolved_yaml(resolved: ResolvedSpec) -> str:
    """The spec as YAML, the source of each value behind it (`default`, `file:7`, `environment:NAME`, `flag`)."""
    return "".join(f"{line}\n" for line in _lines(visible_spec(resolved), (), resolved.provenance))


def _without_secrets(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _without_secrets(item, str(name)) for name, item in value.items()}
    # `environment.secrets` is a list of names, and names are meant to be seen; only single texts hold secrets.
    if isinstance(value, str):
        return HIDDEN if is_secret_name(key) else hide_url_passwords(value, HIDDEN)
    return [_without_secrets(item) for item in value] if isinstance(value, list | tuple) else value


def _lines(section: Mapping[str, Any], path: tuple[str, ...], provenance: Mapping[str, str]) -> Iterator[str]:
    indent = "  " * len(path)
    for key, value in section.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_scalar(key)}:"
            yield from _lines(value, here, provenance)
        else:
            text = f"{indent}{_scalar(key)}: {_scalar(value)}"
            yield f"{text:<{_COMMENT_COLUMN}}  # {provenance.get('.'.join(here), 'default')}"


def _scalar(value: Any) -> str:
    """A value on one line, as YAML reads it back."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
