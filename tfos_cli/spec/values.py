"""The small value types that fields of the spec are made of; knows nothing about files or sections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

__all__ = (
    "Args",
    "Memory",
    "Seconds",
    "Text",
    "TextMap",
    "Texts",
    "VariableName",
    "expected",
    "is_memory",
    "is_secret_name",
    "memory_bytes",
    "property_bytes",
    "show_number",
)

MEMORY_PATTERN = r"^[1-9][0-9]{0,8}[kKmMgGtT][bB]?$"
MEMORY_EXPECTED = "a size with a unit, such as 512m or 4g"
LONGEST_SECONDS = 1e8
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

_MEMORY = re.compile(MEMORY_PATTERN.removesuffix("$") + r"\Z")
_VARIABLE = re.compile(VARIABLE_PATTERN.removesuffix("$") + r"\Z")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# The words by which Spark itself decides what to hide in its web page (spark.redaction.regex), and "credential".
_SECRET_NAME = re.compile(r"secret|password|passwd|token|access[._-]?key|credential", re.IGNORECASE)


def expected(what: str) -> PydanticCustomError:
    """The error of a validator: `what` continues the sentence "..., expected"."""
    return PydanticCustomError("expected", "expected {expected}", {"expected": what})


def memory_bytes(text: str) -> int:
    """The number of bytes of a size that `Memory` accepted, such as `512m`."""
    digits = text.lower().rstrip("b")
    return int(digits[:-1]) * _UNITS[digits[-1]]


def is_memory(text: str) -> bool:
    """Whether a text is a size with a unit."""
    return _MEMORY.match(text) is not None


def property_bytes(text: str) -> int | None:
    """The number of bytes of a Spark property, where MiB are meant without a unit; None when it is no size."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text) << 20
    return memory_bytes(text) if is_memory(text) else None


def is_secret_name(name: str) -> bool:
    """Whether a configuration key or variable of this name usually holds a secret, so that its value is not shown."""
    return _SECRET_NAME.search(name) is not None


def show_number(value: float) -> int | float:
    """600 rather than 600.0."""
    return int(value) if int(value) == value else value


def _check_memory(value: object) -> object:
    if not isinstance(value, str) or not is_memory(value):
        raise expected(MEMORY_EXPECTED)
    return value


def _check_variable(value: object) -> object:
    if not isinstance(value, str) or not _VARIABLE.match(value):
        raise expected("only the name of an environment variable: letters, digits and '_', no digit first, and no '=VALUE'")
    return value


def _to_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _check_args(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple) and not any(isinstance(item, Mapping | list | tuple) or item is None for item in value):
        return tuple(str(_to_text(item)) for item in value)
    raise expected("a mapping (becomes an argparse.Namespace) or a list of texts (becomes argv)")


Memory = Annotated[str, BeforeValidator(_check_memory), Field(json_schema_extra={"pattern": MEMORY_PATTERN})]
"""A size as the JVM writes it: digits and a unit (k, m, g, t)."""

VariableName = Annotated[str, BeforeValidator(_check_variable), Field(json_schema_extra={"pattern": VARIABLE_PATTERN})]
"""The name of an environment variable."""

Seconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS, allow_inf_nan=False), PlainSerializer(show_number)]
"""A duration above zero."""

Text = Annotated[str, BeforeValidator(_to_text, json_schema_input_type=str | int | float | bool)]
"""Text; numbers and booleans of the YAML file are taken as they are written."""

TextMap = dict[str, Text]
"""Free names with texts."""

Texts = Annotated[tuple[str, ...], Field(strict=False)]
"""A list of texts."""

Args = Annotated[dict[str, Any] | tuple[str, ...], BeforeValidator(_check_args, json_schema_input_type=dict[str, Any] | list[Text])]
"""What `map_fun` gets as its first argument."""
