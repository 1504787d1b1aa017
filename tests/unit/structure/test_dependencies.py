"""Every dependency is wanted, explained and pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
DEVELOPMENT = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
EXTRAS = [Requirement(text) for name, texts in PROJECT["optional-dependencies"].items() if name != "dev" for text in texts]
#: Names of distributions whose module is called otherwise.
MODULES = {"PyYAML": "yaml", "hdfs-native": "hdfs_native"}
#: Installed with something else that is a dependency, and part of its public face.
COMES_WITH = {"py4j": "pyspark", "keras": "tensorflow", "pydantic_core": "pydantic"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str = "constraints.txt") -> dict[str, Version]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), f"{file} holds name==version lines only"
    return {normal(name): Version(version) for name, version in pairs}


def imported(package: str) -> set[str]:
    found: set[str] = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"tfos_cli", "tfos_core"}


@pytest.mark.parametrize("requirement", [*RUNTIME, *EXTRAS, *DEVELOPMENT], ids=lambda requirement: requirement.name)
def test_a_dependency_is_explained_and_pinned_within_its_range(requirement: Requirement) -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{re.escape(requirement.name)}`", explained, re.MULTILINE), "docs/dependencies.md has no line for it"
    pinned = pins().get(normal(requirement.name))
    assert pinned is not None, "constraints.txt does not pin it"
    assert requirement.specifier.contains(pinned)


def test_nothing_is_imported_that_is_not_a_dependency() -> None:
    declared = {MODULES.get(requirement.name, requirement.name) for requirement in [*RUNTIME, *EXTRAS]} | set(COMES_WITH)
    assert (imported("tfos_core") | imported("tfos_cli")) - declared == set()


def test_keras_for_the_installed_tensorflow_is_pinned_to_its_minor_version() -> None:
    tensorflow, legacy = pins()["tensorflow"], pins()["tf-keras"]
    assert tensorflow.release[:2] == legacy.release[:2]


def test_the_oldest_environment_is_at_the_lower_end_of_the_ranges() -> None:
    oldest = pins(".ci/constraints-oldest.txt")
    assert [str(r) for r in RUNTIME if not r.specifier.contains(oldest[normal(r.name)])] == []
    lowest = {r.name: Version(next(s.version for s in r.specifier if s.operator == ">=")) for r in RUNTIME}
    for name in ("pyspark", "tensorflow", "tf_keras"):
        assert oldest[normal(name)].release[:2] == lowest[name].release[:2]
