"""Every module says what is public in it; modules that users import say it completely."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: What programs of users import, and what both packages build on.
FOR_USERS = (
    "tfos_core.context",
    "tfos_core.errors",
    "tfos_core.events",
    "tfos_core.jobplan",
    "tfos_core.marker",
    "tfos_core.options",
    "tfos_core.topology",
)


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def public_definitions(file: Path) -> set[str]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")}


FILES = {
    module_name(file): file
    for package in ("tfos_core", "tfos_cli")
    for file in sorted((ROOT / package).rglob("*.py"))
    if file.name != "__main__.py" and public_definitions(file)
}


@pytest.mark.parametrize("name", FILES)
def test_a_module_lists_names_that_it_has(name: str) -> None:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    assert isinstance(listed, tuple), f"{name} has no tuple __all__"
    assert len(set(listed)) == len(listed)
    assert [entry for entry in listed if entry.startswith("_") or not hasattr(module, entry)] == []


@pytest.mark.parametrize("name", FOR_USERS)
def test_a_module_for_users_lists_all_its_functions_and_classes(name: str) -> None:
    assert public_definitions(FILES[name]) - set(importlib.import_module(name).__all__) == set()


def test_the_names_of_the_2022_api_are_there() -> None:
    core = importlib.import_module("tfos_core")
    assert {"TFCluster", "TFNode", "TFSparkNode", "compat", "marker", "pipeline", "reservation"} <= set(core.__all__)
    assert [name for name in core.__all__ if not hasattr(core, name)] == []
