"""Frames between a feed task and its node: headers and small JSON payloads; standard library only.

A frame is a 16 byte header (version, op, kind, rows, length; network byte order) and `length` bytes. Blocks of rows are made by
`packing` and read by `blocks`; this module never looks into them.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tfos_core.errors import FeedError
from tfos_core.json_text import parse_json

__all__ = (
    "HEADER_BYTES",
    "VERSION",
    "Header",
    "Kind",
    "Mode",
    "Op",
    "PeerGoneError",
    "pack_header",
    "pack_json",
    "peer_is_me",
    "read_header",
    "read_into",
    "read_json",
    "unpack_header",
    "unpack_json",
)

VERSION = 1
_HEADER = struct.Struct("!BBHIQ")
HEADER_BYTES = _HEADER.size
MAX_JSON_BYTES = 4 << 20


class Op(IntEnum):
    """What a frame says. To the node: HELLO, BLOCK, EOS. From the node: all others."""

    HELLO = 1
    WELCOME = 2
    BLOCK = 3
    EOS = 4
    RESULTS = 5
    DRAINED = 6
    CLOSED = 7
    FAILED = 8


class Kind(IntEnum):
    """How the rows of a BLOCK (or RESULTS) are written."""

    NONE = 0
    RAW_PICKLE = 1
    PICKLE = 2
    COLUMNS = 3
    ARROW_SCHEMA = 4
    ARROW_BATCH = 5


class Mode(IntEnum):
    """What a connection is for; ASK only learns the node's state, GAVE_UP reports that a feed task stopped waiting."""

    TRAIN = 1
    INFER = 2
    ASK = 3
    GAVE_UP = 4


class PeerGoneError(ConnectionError):
    """The other end closed the connection in the middle of a conversation."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one frame; `rows` is 0 where the sender does not count."""

    op: Op
    kind: Kind
    rows: int
    length: int


def pack_header(op: Op, kind: Kind = Kind.NONE, rows: int = 0, length: int = 0) -> bytes:
    """The bytes of a header."""
    return _HEADER.pack(VERSION, op, kind, rows, length)


def unpack_header(data: bytes) -> Header:
    """Read a header.

    Raises:
        FeedError: another version, or not one of our frames.
    """
    version, op, kind, rows, length = _HEADER.unpack(data)
    if version != VERSION:
        raise FeedError(
            f"a feed frame is of version {version}, not {VERSION}", "Use the same tfos on the driver and on every executor."
        )
    try:
        return Header(Op(op), Kind(kind), rows, length)
    except ValueError as exc:
        raise FeedError(f"a feed frame is damaged: {exc}") from exc


def pack_json(op: Op, message: Mapping[str, Any]) -> bytes:
    """A whole frame with a JSON payload."""
    payload = json.dumps(message, separators=(",", ":")).encode()
    return pack_header(op, length=len(payload)) + payload


def unpack_json(data: bytes | bytearray) -> dict[str, Any]:
    """Read a JSON payload.

    Raises:
        FeedError: not a JSON object.
    """
    try:
        message = parse_json(bytes(data))
    except ValueError as exc:
        raise FeedError(f"a feed frame does not hold JSON: {exc}") from exc
    if not isinstance(message, dict):
        raise FeedError(f"a feed frame holds a {type(message).__name__}, not a JSON object")
    return message


def read_into(sock: socket.socket, view: memoryview) -> None:
    """Fill `view` from a blocking socket.

    Raises:
        PeerGoneError: end of stream.
        OSError: the connection broke, or the socket's timeout passed.
    """
    while view:
        count = sock.recv_into(view)
        if count == 0:
            raise PeerGoneError("the other end of a feed connection closed it")
        view = view[count:]


def read_header(sock: socket.socket) -> Header | None:
    """The next header from a blocking socket, or None at a clean end of stream."""
    data = bytearray(HEADER_BYTES)
    view = memoryview(data)
    first = sock.recv_into(view)
    if first == 0:
        return None
    read_into(sock, view[first:])
    return unpack_header(bytes(data))


def read_json(sock: socket.socket, length: int) -> dict[str, Any]:
    """A JSON payload of `length` bytes from a blocking socket."""
    if length > MAX_JSON_BYTES:
        raise FeedError(f"a feed frame with {length} bytes of JSON is above the limit of {MAX_JSON_BYTES}")
    data = bytearray(length)
    read_into(sock, memoryview(data))
    return unpack_json(data)


def peer_is_me(sock: socket.socket, uid: int) -> bool:
    """Whether the process at the other end runs as `uid`; elsewhere than on Linux the folder's mode has to do."""
    if not sys.platform.startswith("linux"):
        return True
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == uid)
