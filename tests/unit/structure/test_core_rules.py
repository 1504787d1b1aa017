"""What library code must not do: print, end the process, take over signals, stop somebody's SparkContext."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE = sorted((ROOT / "tfos_core").rglob("*.py"))
SOURCES = [
    file for folder in ("tfos_core", "tfos_cli", "jobspecs", "benchmarks", "tests") for file in (ROOT / folder).rglob("*.py")
]
FORBIDDEN = {
    "print",
    "input",
    "exit",
    "quit",
    "sys.exit",
    "signal.signal",
    "signal.alarm",
    "signal.setitimer",
    "logging.basicConfig",
    "sc.stop",
    "spark.stop",
    "sparkContext.stop",
    "self._sc.stop",
    "self._spark.stop",
}
#: The shim is an application: the SparkContext that it stops is the one that it made.
MAY_STOP_SPARK = ROOT / "tfos_core" / "shim"


def calls(file: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every call, except in `main()` of a module that is a program: it is the edge of a process."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    is_program = any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)
    edges = [n for n in tree.body if isinstance(n, ast.If) or (isinstance(n, ast.FunctionDef) and n.name in ("main", "_main"))]
    excused = {id(inner) for edge in edges for inner in ast.walk(edge)} if is_program else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in excused:
            yield node.lineno, ast.unparse(node.func)


@pytest.mark.parametrize("file", CORE, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_core_neither_prints_nor_ends_the_process_nor_touches_signals(file: Path) -> None:
    allowed = {"spark.stop"} if MAY_STOP_SPARK in file.parents else set()
    assert [(line, name) for line, name in calls(file) if name in FORBIDDEN - allowed] == []


def test_no_module_is_named_after_nothing() -> None:
    assert [file.name for file in SOURCES if file.stem in ("utils", "common", "helpers", "misc")] == []


@pytest.mark.parametrize("package", ["tfos_core", "tfos_cli"])
def test_no_module_is_longer_than_400_lines(package: str) -> None:
    sizes = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in (ROOT / package).rglob("*.py")
    }
    assert {name: size for name, size in sizes.items() if size > 400} == {}
