"""The functions that a spec names: there, readable, with the right parameters. Found in the source, never by importing it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_cli.spec.checks.finding import Case, Finding, Findings
from tfos_cli.spec.problems import did_you_mean
from tfos_cli.submit.references import Reference, parse_reference
from tfos_core.errors import ConfigError

__all__ = ("RULES",)

MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A function that the spec names in `field`, with what it is called with."""

    field: str
    text: str
    parameters: tuple[str, ...]


def functions(case: Case) -> Findings:
    """Every function of the spec."""
    for named in _named(case):
        try:
            reference = parse_reference(named.field, named.text, case.resolved.folder)
        except ConfigError as exc:
            yield case.error("function-reference", named.field, exc.message, exc.hint or "")
            continue
        file = reference.file or _module_file(reference.module, (str(case.resolved.folder), *case.search_path))
        if file is None:
            message = f"the module {reference.module} is not installed here; it has to be on the driver and on every executor"
            yield case.warning("module-not-here", named.field, message, "Check the name, or name a file: apps/train.py:main_fun.")
        else:
            yield from _in_file(case, named, reference, file)


def _named(case: Case) -> Iterator[Named]:
    data = case.spec.data
    if case.spec.entrypoint is not None:
        yield Named(field="entrypoint", text=case.spec.entrypoint, parameters=("args", "ctx"))
    if data is not None and data.transform is not None:
        yield Named(field="data.transform", text=data.transform, parameters=("spark", "df", "args"))
    if data is not None and data.source is not None:
        yield Named(field="data.source", text=data.source, parameters=("spark", "args"))
    if case.spec.stream is not None and case.spec.stream.transform is not None:
        yield Named(field="stream.transform", text=case.spec.stream.transform, parameters=("spark", "df", "args"))


def _module_file(module: str, folders: Iterable[str]) -> Path | None:
    """The source of a module; looking is safe, importlib.util.find_spec would run the packages above it."""
    relative = Path(*module.split("."))
    for folder in folders:
        for candidate in (Path(folder) / relative.with_suffix(".py"), Path(folder) / relative / "__init__.py"):
            if _is_file(candidate):
                return candidate
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _in_file(case: Case, named: Named, reference: Reference, file: Path) -> Iterator[Finding]:
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES)
    except FileNotFoundError:
        fix = _file_hint(file) or f"Paths are relative to the spec, here {case.resolved.folder}."
        yield case.error("function-file", named.field, f"there is no file {file}", fix)
        return
    except OSError as exc:
        yield case.error("function-file", named.field, f"{file} can not be read: {exc.strerror or exc}", "Make it a readable file.")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's SyntaxWarnings are shown when the code runs
            tree = ast.parse(content, filename=str(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        line = f":{exc.lineno}" if isinstance(exc, SyntaxError) and exc.lineno else ""
        detail = exc.msg if isinstance(exc, SyntaxError) else str(exc)
        yield case.error("function-file", named.field, f"{file}{line} is not Python: {detail}", "Correct the file.")
        return
    yield from _in_module(case, named, reference, file, tree)


def _file_hint(file: Path) -> str:
    try:
        names = [entry.name for entry in file.parent.iterdir() if entry.suffix == ".py"]
    except OSError:
        return ""
    return did_you_mean(file.name, names)


def _in_module(case: Case, named: Named, reference: Reference, file: Path, tree: ast.Module) -> Iterator[Finding]:
    names, is_complete = _top_level(tree)
    if reference.function not in names:
        if is_complete:
            fix = did_you_mean(reference.function, names) or f"The file defines: {', '.join(sorted(names)) or 'nothing'}."
            yield case.error("function-missing", named.field, f"{file} has no function {reference.function}", fix)
        return
    node = names[reference.function]
    call = f"{reference.function}({', '.join(named.parameters)})"
    if isinstance(node, ast.AsyncFunctionDef):
        yield case.error(
            "function-signature", named.field, f"{reference.function} is async, and it is called as {call}", "Use def."
        )
    elif isinstance(node, ast.FunctionDef) and not node.decorator_list and not _takes(node.args, len(named.parameters)):
        message = f"{reference.function} in {file}:{node.lineno} can not be called as {call}"
        yield case.error("function-signature", named.field, message, f"Define it as def {call}.")


def _top_level(tree: ast.Module) -> tuple[dict[str, ast.stmt], bool]:
    """Names that a module binds, and whether these are all of them (no star import, no `__getattr__`)."""
    names: dict[str, ast.stmt] = {}
    is_complete = True
    pending = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            is_complete = is_complete and "*" not in bound
            names.update(dict.fromkeys(bound, node))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = (inner for target in targets for inner in ast.walk(target))
            names.update((inner.id, node) for inner in found if isinstance(inner, ast.Name))
        else:
            blocks = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
            blocks += [handler.body for handler in getattr(node, "handlers", [])]
            pending += [statement for block in blocks if isinstance(block, list) for statement in block]
    return names, is_complete and "__getattr__" not in names


def _takes(arguments: ast.arguments, count: int) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    needs_keyword = any(default is None for default in arguments.kw_defaults)
    return required <= count and (positional >= count or arguments.vararg is not None) and not needs_keyword


RULES = (functions,)
