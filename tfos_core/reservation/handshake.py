"""Who may speak: a mutual challenge and response over one shared secret, and the seal on every later frame. No sockets.

    client -> server   hello  {right, nonce}        server -> client   hello  {nonce}
    client -> server   proof  {mac}                 server -> client   proof  {mac}

Each side's mac covers both fresh nonces, the right and the side's name, under a key of its own for each right, so that nobody
learns the secret, a recorded handshake is worth nothing, and a proof can not be sent back to the one who made it. The session keys
come from the same values, one for each direction. Frames are authenticated and numbered; they are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tfos_core.errors import AuthenticationError, ProtocolError
from tfos_core.reservation.messages import Message, Op

__all__ = ("SEAL_BYTES", "SECRET_BYTES", "ClientHandshake", "Right", "ServerHandshake", "Session", "derive_key", "new_secret")

SECRET_BYTES = 32

_NONCE_BYTES = 32
_SEQUENCE = struct.Struct("!Q")
_MAC_BYTES = hashlib.sha256().digest_size
SEAL_BYTES = _MAC_BYTES + _SEQUENCE.size


class Right(StrEnum):
    """What a connection may do: be a node, look at the cluster, or ask it to stop."""

    REGISTER = "register"
    READ = "read"
    STOP = "stop"


def new_secret() -> bytes:
    """A fresh random secret for one cluster."""
    return secrets.token_bytes(SECRET_BYTES)


def derive_key(secret: bytes, right: Right) -> bytes:
    """The key that proves one right; it does not give away the others."""
    return _mac(secret, b"tfos control channel, right ", right.encode())


class Session:
    """Seals what one side sends and opens what it receives; the two directions are independent of each other."""

    def __init__(self, *, send_key: bytes, receive_key: bytes) -> None:
        self._send_key = send_key
        self._receive_key = receive_key
        self._sent = 0
        self._received = 0

    def seal(self, body: bytes) -> bytes:
        """What goes before `body`: its mac and its number. Frames must be sent in the order of these calls."""
        number = _SEQUENCE.pack(self._sent)
        self._sent += 1
        return _mac(self._send_key, number, body) + number

    def open(self, payload: bytes) -> bytes:
        """The body of a sealed payload.

        Raises:
            ProtocolError: it is not from the peer of this session, or not the next one the peer sent.
        """
        mac, number, body = payload[:_MAC_BYTES], payload[_MAC_BYTES:SEAL_BYTES], payload[SEAL_BYTES:]
        if not hmac.compare_digest(mac, _mac(self._receive_key, number, body)):
            raise ProtocolError("it sent a frame with a wrong signature")
        if number != _SEQUENCE.pack(self._received):
            raise ProtocolError("it sent a frame out of turn")
        self._received += 1
        return body


class ServerHandshake:
    """The server's side: tell it what the peer said, send what it answers; `session` is there once the peer has proved itself."""

    def __init__(self, secret: bytes) -> None:
        self.right: Right | None = None
        self.session: Session | None = None
        self._secret = secret
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._peer_nonce = b""

    def opening(self) -> Message:
        """The first message, which does not wait for the peer's."""
        return {"op": str(Op.HELLO), "nonce": self._nonce.hex()}

    def receive(self, message: Mapping[str, Any]) -> Message | None:
        """The answer to a message of the peer, or None.

        Raises:
            AuthenticationError: the proof is wrong.
            ProtocolError: the message is not what comes next.
        """
        if self.session is not None:
            raise ProtocolError("it went on with a handshake that is over")
        if self.right is None:
            _expect(message, Op.HELLO)
            right = message.get("right")
            if not isinstance(right, str) or right not in set(Right):
                raise ProtocolError(f"it asked for the right {right!r:.40}, which is none of {', '.join(Right)}")
            self._peer_nonce = _hex(message, "nonce", _NONCE_BYTES)
            self.right = Right(right)
            return None
        _expect(message, Op.PROOF)
        key = derive_key(self._secret, self.right)
        transcript = _transcript(self.right, client=self._peer_nonce, server=self._nonce)
        if not hmac.compare_digest(_hex(message, "mac", _MAC_BYTES), _mac(key, b"client proof ", transcript)):
            raise AuthenticationError(f"it does not know the secret of this cluster (it asked for the right to {self.right})")
        self.session = Session(
            send_key=_mac(key, b"server to client ", transcript), receive_key=_mac(key, b"client to server ", transcript)
        )
        return {"op": str(Op.PROOF), "mac": _mac(key, b"server proof ", transcript).hex()}


class ClientHandshake:
    """The client's side; `session` is there once the server has proved itself."""

    def __init__(self, secret: bytes, right: Right) -> None:
        self.right: Right = right
        self.session: Session | None = None
        self._key = derive_key(secret, right)
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._transcript = b""

    def opening(self) -> Message:
        """The first message, which does not wait for the peer's."""
        return {"op": str(Op.HELLO), "right": str(self.right), "nonce": self._nonce.hex()}

    def receive(self, message: Mapping[str, Any]) -> Message | None:
        """The answer to a message of the server, or None.

        Raises:
            AuthenticationError: the server refused our proof, or its own is wrong.
            ProtocolError: the message is not what comes next.
        """
        if self.session is not None:
            raise ProtocolError("it went on with a handshake that is over")
        if message.get("op") == Op.DENIED:
            raise AuthenticationError(
                f"it refused our secret (for the right to {self.right})", "Use the secret of the server that runs this cluster."
            )
        if not self._transcript:
            _expect(message, Op.HELLO)
            self._transcript = _transcript(self.right, client=self._nonce, server=_hex(message, "nonce", _NONCE_BYTES))
            return {"op": str(Op.PROOF), "mac": _mac(self._key, b"client proof ", self._transcript).hex()}
        _expect(message, Op.PROOF)
        if not hmac.compare_digest(_hex(message, "mac", _MAC_BYTES), _mac(self._key, b"server proof ", self._transcript)):
            raise AuthenticationError("it does not know the secret of this cluster")
        self.session = Session(
            send_key=_mac(self._key, b"client to server ", self._transcript),
            receive_key=_mac(self._key, b"server to client ", self._transcript),
        )
        return None


def _mac(key: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()


def _transcript(right: Right, *, client: bytes, server: bytes) -> bytes:
    return client + server + right.encode()


def _expect(message: Mapping[str, Any], op: Op) -> None:
    if message.get("op") != op:
        raise ProtocolError(f"it sent {message.get('op')!r:.40} where {str(op)!r} comes next")


def _hex(message: Mapping[str, Any], name: str, size: int) -> bytes:
    value = message.get(name)
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        data = b""
    if len(data) != size:
        raise ProtocolError(f"it sent a {message.get('op')} without a {name} of {size} bytes")
    return data
