"""Validation errors of pydantic as sentences with the place, the value, what was expected and the nearest right word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tfos_cli.spec.errors import Problem
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.resolve import Layers, Path
from tfos_core.shim.redaction import hide_url_passwords

__all__ = ("did_you_mean", "dotted", "model_in", "shown", "validation_problems")

LONGEST_SHOWN = 60
MOST_PROBLEMS = 100
"""A file with more mistakes than this is no spec."""
HIDDEN = (("environment",), ("spark", "conf"), ("args",), ("data", "options"))
"""Where values may be secrets: a message says what kind of value is there, never the value."""

NOT_SHOWN = "not shown"

_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys and values",
    "model_type": "a mapping of keys and values",
}
_SHORTHANDS: dict[tuple[int | str, ...], str] = {
    ("gpus",): "a whole number or a mapping",
    ("tensorboard",): "true, false or a mapping",
}
_LIMITS = {"greater_than": "above {gt}", "greater_than_equal": "{ge} or more", "less_than_equal": "{le} or less"}


def validation_problems(error: ValidationError, layers: Layers, file: str) -> Iterator[Problem]:
    """One problem per error, each where its value was set; a key that is missing because it was misspelt is one problem."""
    # The words nearest to thousands of unknown keys take minutes to find, and nobody would read them.
    problems = [_problem(detail, layers, file) for detail in error.errors(include_url=False)[:MOST_PROBLEMS]]
    hints = {problem.hint for problem in problems if problem.message.startswith("unknown key")}
    for problem in problems:
        is_misspelt = any(f"'{name}'" in hint for hint in hints for name in (problem.field, problem.field.rpartition(".")[2]))
        if not (problem.message.endswith("is missing") and is_misspelt):
            yield problem


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?`, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else ""


def dotted(path: Sequence[str | int]) -> str:
    """`spark.jars[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def shown(value: object, path: Sequence[str | int]) -> str:
    """A value for a message, shortened; only its kind where it may be a secret."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "empty"
    if _is_hidden(path):
        return NOT_SHOWN
    text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else str(value)
    text = hide_url_passwords(text)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _is_hidden(path: Sequence[str | int]) -> bool:
    return any(tuple(path[: len(hidden)]) == hidden for hidden in HIDDEN)


def _problem(detail: ErrorDetails, layers: Layers, file: str) -> Problem:
    path: Path = tuple(detail["loc"])
    origin = layers.origin_of(path)
    where, line = (origin.shown, origin.line) if origin else (file, None)
    field = dotted(path)
    match detail["type"]:
        case "extra_forbidden":
            name = field.partition("=")[0]  # NAME=VALUE written as a key may be a secret
            return Problem(where=where, line=line, field=name, given=name, message=f"unknown key '{name}'", hint=_key_hint(path))
        case "missing":
            return Problem(where=where, line=line, field=field, message=f"the key '{field}' is missing", hint=_add_hint(path))
        case _:
            return _value_problem(detail, where, line, path)


def _value_problem(detail: ErrorDetails, where: str, line: int | None, path: Path) -> Problem:
    field = dotted(path)
    is_name = path[-1] == "[key]"  # pydantic's mark for a key of a free mapping that is wrong itself
    given = repr(str(path[-2]).partition("=")[0]) if is_name else shown(detail["input"], path)
    wanted = _expected(detail)
    if is_name:
        field = dotted(path[:-2])
        message = f"{field} has the name {given}, expected {wanted}"
    elif given == NOT_SHOWN:
        message = f"{field} has a wrong value (not shown), expected {wanted}"
    else:
        message = f"{field} is {given}, expected {wanted}"
    return Problem(
        where=where, line=line, field=field, given=given, expected=wanted, message=message, hint=_value_hint(detail, path)
    )


def _expected(detail: ErrorDetails) -> str:
    kind, ctx = detail["type"], detail.get("ctx", {})
    if kind == "expected":
        return str(ctx["expected"])
    if kind == "literal_error":
        return f"one of {ctx['expected']}" if " or " in str(ctx["expected"]) else str(ctx["expected"])
    if kind == "model_type" and detail["loc"] in _SHORTHANDS:
        return _SHORTHANDS[detail["loc"]]
    if kind in _LIMITS:
        limit = {name: int(value) if float(value).is_integer() else value for name, value in ctx.items()}
        return _LIMITS[kind].format(**limit)
    return _TYPES.get(kind, detail["msg"][:1].lower() + detail["msg"][1:])


def _value_hint(detail: ErrorDetails, path: Path) -> str:
    value = detail["input"]
    if detail["type"] == "literal_error" and isinstance(value, str):
        return did_you_mean(
            value, [word.strip(" '") for word in _expected(detail).removeprefix("one of").replace(" or ", ",").split(",")]
        )
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off") and "true" in _expected(detail):
        return "Write true or false: yes, no, on and off are text here, as in YAML 1.2."
    if detail["type"] == "string_type" and isinstance(value, int | float):
        return "Put quotes around it."
    if detail["type"] in ("int_type", "float_type") and isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        return "Remove the quotes."
    return ""


def _key_hint(path: Path) -> str:
    """The nearest key of the same section, or the section that a key of this very name belongs to."""
    word = str(path[-1])
    section = _section(path[:-1])
    hint = did_you_mean(word, section.model_fields) if section else ""
    if hint:
        return hint
    elsewhere = [name for name in _all_keys(JobSpec, ()) if name.rpartition(".")[2] == word]
    if elsewhere:
        return f"Did you mean '{elsewhere[0]}'?"
    return did_you_mean(word, _all_keys(JobSpec, ())) or (f"Known keys: {', '.join(section.model_fields)}." if section else "")


def _add_hint(path: Path) -> str:
    section = _section(path[:-1])
    info = section.model_fields.get(str(path[-1])) if section else None
    return f"Add it: {info.description}" if info is not None and info.description else "Add it."


def _section(path: Path) -> type[BaseModel] | None:
    model: type[BaseModel] = JobSpec
    for part in path:
        info = model.model_fields.get(str(part))
        inner = model_in(info.annotation) if info is not None else None
        if inner is None:
            return None
        model = inner
    return model


def model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None


def _all_keys(model: type[BaseModel], prefix: tuple[str, ...]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield ".".join((*prefix, name))
        inner = model_in(info.annotation)
        if inner is not None:
            yield from _all_keys(inner, (*prefix, name))
