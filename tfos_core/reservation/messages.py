"""What frames hold: JSON objects with an `op`. Knows which ops belong to the control channel itself; knows no sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tfos_core.errors import ProtocolError, ReservationError
from tfos_core.json_text import parse_json

__all__ = ("MESSAGE_LIMIT_BYTES", "RESERVED", "Message", "Op", "check_user_message", "decode_message", "encode_message")

#: The largest JSON text of one message, once a peer is authenticated.
MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024

Message = dict[str, Any]


class Op(StrEnum):
    """The ops that the control channel keeps to itself; all others belong to those who use it."""

    HELLO = "hello"
    PROOF = "proof"
    DENIED = "denied"
    REGISTER = "register"
    REGISTERED = "registered"
    REFUSED = "refused"
    AWAIT = "await"
    CLUSTER = "cluster"
    LIST = "list"
    RESERVATIONS = "reservations"
    STOP = "stop"
    STOPPING = "stopping"


RESERVED = frozenset(op.value for op in Op)


def encode_message(message: Mapping[str, Any]) -> bytes:
    """The JSON text of a message.

    Raises:
        ReservationError: it has no `op`, is not JSON, or is larger than MESSAGE_LIMIT_BYTES. (Not a ProtocolError: the mistake is
            on this side.)
    """
    op = message.get("op")
    if not isinstance(op, str) or not op:
        raise ReservationError(f"a message needs an 'op' that is a text, not {op!r}")
    try:
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as exc:
        raise ReservationError(f"message {op!r} can not be written as JSON: {exc}") from exc
    if len(body) > MESSAGE_LIMIT_BYTES:
        raise ReservationError(f"message {op!r} has {len(body)} bytes, and at most {MESSAGE_LIMIT_BYTES} are allowed")
    return body


def decode_message(body: bytes) -> Message:
    """The message in a JSON text.

    Raises:
        ProtocolError: the text is not a JSON object with an `op`.
    """
    try:
        message = parse_json(str(body, "utf-8"))
    except ValueError as exc:
        raise ProtocolError(f"it sent a frame that is not JSON ({type(exc).__name__})") from exc
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise ProtocolError("it sent a frame that is not a JSON object with an 'op'")
    return message


def check_user_message(message: Mapping[str, Any]) -> None:
    """Raise ReservationError when a user of the channel takes an op that is the channel's own."""
    if message.get("op") in RESERVED:
        raise ReservationError(f"the op {message['op']!r} belongs to the control channel itself", "Use another name.")
