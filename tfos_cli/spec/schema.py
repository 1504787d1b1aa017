"""The keys of a spec for editors (JSON Schema) and for people (the table of docs/spec.md), both from the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.problems import model_in

__all__ = ("json_schema", "reference_table")

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """What a spec file may hold, shorthands included, as a JSON Schema."""
    return {"$schema": DIALECT, **JobSpec.model_json_schema(mode="validation")}


def reference_table() -> str:
    """Markdown: a table of keys for the top and one for each section."""
    return "\n".join(_sections(JobSpec, ""))


def _sections(model: type[BaseModel], prefix: str) -> Iterator[str]:
    schema = JobSpec.model_json_schema(mode="validation")
    yield f"### {prefix.rstrip('.') or 'The top'}"
    yield ""
    yield model.__doc__ or ""
    yield ""
    yield "| key | value | meaning |"
    yield "|---|---|---|"
    inner: list[tuple[type[BaseModel], str]] = []
    for name, info in model.model_fields.items():
        section = model_in(info.annotation)
        if section is not None:
            inner.append((section, f"{prefix}{name}."))
        kind = _kind(_property(schema, model, name), schema)
        yield f"| `{prefix}{name}` | {kind} | {info.description} |"
    yield ""
    for section, name in inner:
        yield from _sections(section, name)


def _property(schema: Mapping[str, Any], model: type[BaseModel], name: str) -> Mapping[str, Any]:
    owner = schema if model is JobSpec else schema["$defs"][model.__name__]
    found: Mapping[str, Any] = owner["properties"][name]
    return found


def _kind(part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The values of a key in a few words."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_kind(option, schema) for option in part["anyOf"]))
    if "$ref" in part:
        return "mapping"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if "const" in part:
        return f"`{part['const']}`"
    kind = part.get("type", "")
    if kind == "array":
        return "list of texts"
    if kind == "object":
        return "mapping"
    names = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text", "null": "null"}
    return names.get(str(kind), str(kind)) + _limits(part)


def _limits(part: Mapping[str, Any]) -> str:
    if "exclusiveMinimum" in part:
        return f" above {part['exclusiveMinimum']}"
    if "minimum" in part:
        return f" from {part['minimum']}" + (f" to {part['maximum']}" if part.get("maximum", 1e9) < 1e6 else "")
    return ""
