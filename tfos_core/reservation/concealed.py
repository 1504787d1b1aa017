"""Values that only those who know a cluster's secret can read, although the control channel itself is not encrypted.

The values are XORed with a stream of HMAC-SHA256 over a fresh nonce and a counter, under a key of its own. The frame that carries
them has its seal, so that nobody can change them either. Their length is hidden up to a multiple of 256 bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from tfos_core.errors import ProtocolError
from tfos_core.json_text import parse_json
from tfos_core.reservation.messages import encode_message

__all__ = ("conceal", "reveal")

_NONCE_BYTES = 32
_PAD_BYTES = 256
_BLOCK_BYTES = hashlib.sha256().digest_size


def conceal(secret: bytes, values: Mapping[str, str]) -> dict[str, str]:
    """Fields for a message, out of names and values; different ones each time."""
    body = encode_message({"op": "values", "values": dict(values)})
    body += b" " * (-len(body) % _PAD_BYTES)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return {"nonce": nonce.hex(), "concealed": _xor(body, _stream(secret, nonce, len(body))).hex()}


def reveal(secret: bytes, message: Mapping[str, Any]) -> dict[str, str]:
    """The names and values in a message with the fields of `conceal`.

    Raises:
        ProtocolError: they were not made with this secret.
    """
    try:
        nonce, data = bytes.fromhex(message["nonce"]), bytes.fromhex(message["concealed"])
        values = parse_json(_xor(data, _stream(secret, nonce, len(data))))["values"]
        return {str(name): str(value) for name, value in values.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ProtocolError("values came that were not concealed with the secret of this cluster") from exc


def _stream(secret: bytes, nonce: bytes, size: int) -> bytes:
    key = hmac.digest(secret, b"tfos concealed values", "sha256")
    return b"".join(hmac.digest(key, nonce + number.to_bytes(8), "sha256") for number in range(-(-size // _BLOCK_BYTES)))


def _xor(data: bytes, stream: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))
