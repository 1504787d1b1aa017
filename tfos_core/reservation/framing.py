"""Length-prefixed frames: encode, and decode from pieces of any size. Knows nothing of sockets or of what a frame holds.

A frame is `magic (2 bytes) | protocol version (2) | payload length (4) | payload`, integers in network order. The first four bytes
keep their meaning in every later version, so that two versions can always tell each other apart.
"""

from __future__ import annotations

import struct

from tfos_core.errors import ProtocolError

__all__ = ("HANDSHAKE_LIMIT_BYTES", "HEADER_BYTES", "PROTOCOL_VERSION", "Decoder", "encode_frame", "frame_header")

PROTOCOL_VERSION = 1
#: A stranger can make us hold no more than this.
HANDSHAKE_LIMIT_BYTES = 1024

_MAGIC = b"TF"
_HEADER = struct.Struct("!2sHI")
HEADER_BYTES = _HEADER.size


def frame_header(payload_bytes: int) -> bytes:
    """The header of a frame whose payload has `payload_bytes` bytes and is sent separately."""
    return _HEADER.pack(_MAGIC, PROTOCOL_VERSION, payload_bytes)


def encode_frame(payload: bytes) -> bytes:
    """One whole frame."""
    return frame_header(len(payload)) + payload


class Decoder:
    """Takes bytes as they arrive and gives back whole payloads.

    `limit_bytes` is the largest payload allowed; it may be raised between two frames, and is checked as soon as a header is
    there, before the payload is held.
    """

    def __init__(self, limit_bytes: int = HANDSHAKE_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """The next payload, or None when more bytes are needed.

        Raises:
            ProtocolError: the bytes are not ours, come from another version, or announce more than the limit.
        """
        # Wrong magic shows in the first bytes: a peer that sends two of them and waits is noticed as well.
        if not _MAGIC.startswith(self._buffer[: len(_MAGIC)]):
            raise ProtocolError(f"it does not speak the tfos control protocol (it sent {bytes(self._buffer[:16])!r})")
        if len(self._buffer) < HEADER_BYTES:
            return None
        _, version, length = _HEADER.unpack_from(self._buffer)
        if version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"it speaks version {version} of the tfos control protocol, and this side speaks version {PROTOCOL_VERSION}",
                "Use the same version of tfos on driver and executors.",
            )
        if length > self.limit_bytes:
            raise ProtocolError(f"it announced a frame of {length} bytes, and at most {self.limit_bytes} are allowed here")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return payload
