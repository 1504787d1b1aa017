"""Errors as JSON objects and back; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfos_core import errors
from tfos_core.errors import FeedError, NodeError, TfosError

__all__ = ("from_wire", "to_wire")

_NODE_FIELDS = ("node", "host", "executor_id", "exit_code", "signal", "remote_traceback", "last_lines")
_FEED_FIELDS = ("node", "partition")


def to_wire(error: BaseException) -> dict[str, Any]:
    """A JSON object with the type, the message, the hint and the fields of an error."""
    if not isinstance(error, TfosError):
        return {"type": "FeedError", "message": f"{type(error).__name__}: {error}"}
    wire: dict[str, Any] = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    for name in (*_NODE_FIELDS, "partition"):
        if hasattr(error, name):
            wire[name] = getattr(error, name)
    return wire


def from_wire(wire: Mapping[str, Any]) -> TfosError:
    """The error that `to_wire` described; a type that is not ours becomes a FeedError."""
    name = wire.get("type")
    cls = getattr(errors, name, FeedError) if name in errors.__all__ else FeedError
    message = str(wire.get("message") or wire.get("error") or "the node failed")
    hint = wire.get("hint")
    if issubclass(cls, NodeError):
        fields = {key: wire[key] for key in _NODE_FIELDS if wire.get(key) is not None}
        fields["last_lines"] = tuple(fields.get("last_lines", ()))
        return cls(message, hint, **fields)
    if issubclass(cls, FeedError):
        return cls(message, hint, **{key: wire[key] for key in _FEED_FIELDS if wire.get(key) is not None})
    error: TfosError = cls(message, hint)
    return error
