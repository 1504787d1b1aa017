"""Frames that somebody without the secret may send to a control channel: noise, near misses, recordings, replays, changes.

Whoever listens to a network has everything that honest peers said in the clear, so the recordings are of the same secret.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfos_core.errors import ReservationError
from tfos_core.reservation.channel import Channel
from tfos_core.reservation.framing import HANDSHAKE_LIMIT_BYTES, PROTOCOL_VERSION, encode_frame, frame_header
from tfos_core.reservation.handshake import SEAL_BYTES, ClientHandshake, Right, ServerHandshake
from tfos_core.reservation.messages import Op, encode_message

__all__ = ("Attacker", "Tally", "attack_handshakes", "attack_sessions")

_OPS = tuple(op.value for op in Op)
_ODD = (
    None,
    True,
    -1,
    0,
    1 << 80,
    1e308,
    "",
    "x",
    "\x00",
    "é",
    "stop",
    "ab" * 32,
    "00" * 32,
    "zz" * 32,
    "ab" * 31,
    [],
    {},
    [[]],
    "ﬀ" * 32,
)
_FRAMES_PER_CONNECTION = 4


@dataclass(slots=True)
class Tally:
    """What came of an attack."""

    frames: int = 0
    accepted: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Recording:
    """What an honest client of one right said, and was told, frame by frame."""

    right: Right
    to_server: list[bytes] = field(default_factory=list)
    to_client: list[bytes] = field(default_factory=list)


class Attacker:
    """Makes frames from a seed, always the same ones from the same seed (and the recordings)."""

    def __init__(self, seed: int, secret: bytes) -> None:
        self._random = random.Random(seed)
        self._recordings = [_record(secret, right) for right in Right]
        self._heard = [frame for recording in self._recordings for frame in (*recording.to_server, *recording.to_client)]
        self._makers = (
            self._noise, self._noise_in_a_frame, self._json, self._hello, self._proof, self._replay, self._changed_replay,
            self._sealed, self._header, self._deep,
        )  # fmt: skip

    def frame(self) -> bytes:
        """One frame."""
        return self._random.choice(self._makers)()

    def conversation(self) -> list[bytes]:
        """The frames of one connection: whatever, a recorded conversation, or a good beginning and then whatever."""
        chance = self._random.random()
        if chance < 0.15:
            return list(self._random.choice(self._recordings).to_server)
        rest = [self.frame() for _ in range(self._random.randint(1, _FRAMES_PER_CONNECTION))]
        return [self._good_hello(), *rest] if chance < 0.5 else rest

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The same bytes as a network may deliver them."""
        if self._random.random() < 0.8:
            yield data
            return
        start = 0
        while start < len(data):
            size = self._random.randint(1, 64)
            yield data[start : start + size]
            start += size

    def change(self, frame: bytes) -> bytes:
        """A frame with one or more of its bytes changed, left out, added or cut off."""
        data, pick = bytearray(frame), self._random
        for _ in range(pick.randint(1, 3)):
            at = pick.randrange(len(data)) if data else 0
            how = pick.random()
            if how < 0.7 and data:
                data[at] ^= 1 << pick.randrange(8)
            elif how < 0.8:
                del data[at : at + pick.randint(1, 8)]
            elif how < 0.9:
                data[at:at] = pick.randbytes(pick.randint(1, 8))
            else:
                del data[at:]
        return bytes(data)

    def payload_change(self, frame: bytes) -> bytes:
        """A frame whose header is good and whose payload is not what was sent."""
        data = bytearray(frame)
        data[self._random.randrange(8, len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _noise(self) -> bytes:
        return self._random.randbytes(self._random.randint(1, 80))

    def _noise_in_a_frame(self) -> bytes:
        return encode_frame(self._random.randbytes(self._random.randint(0, 120)))

    def _json(self) -> bytes:
        values = {self._word(): self._random.choice(_ODD) for _ in range(self._random.randint(0, 4))}
        value = self._random.choice(
            [values, values | {"op": self._random.choice([*_OPS, *_ODD])}, [values], self._random.choice(_ODD)]
        )
        return encode_frame(json.dumps(value).encode())

    def _word(self) -> str:
        return self._random.choice(["op", "right", "nonce", "mac", "record", "call", "nodes", "op\x00"])

    def _good_hello(self) -> bytes:
        right = str(self._random.choice(list(Right)))
        return encode_frame(encode_message({"op": "hello", "right": right, "nonce": self._random.randbytes(32).hex()}))

    def _hello(self) -> bytes:
        right, nonce = self._random.choice([*Right, *_ODD]), self._random.choice([self._random.randbytes(32).hex(), *_ODD])
        return encode_frame(encode_message({"op": "hello", "right": right, "nonce": nonce}))

    def _proof(self) -> bytes:
        mac = self._random.choice([self._random.randbytes(32).hex(), *_ODD])
        return encode_frame(encode_message({"op": "proof", "mac": mac}))

    def _replay(self) -> bytes:
        return self._random.choice(self._heard)

    def _changed_replay(self) -> bytes:
        return self.change(self._random.choice(self._heard))

    def _sealed(self) -> bytes:
        body = encode_message({"op": self._random.choice(_OPS), "call": 1})
        return frame_header(SEAL_BYTES + len(body)) + self._random.randbytes(32) + bytes(8) + body

    def _header(self) -> bytes:
        length = self._random.choice([0, 1, HANDSHAKE_LIMIT_BYTES, HANDSHAKE_LIMIT_BYTES + 1, 2**31, 2**32 - 1])
        version = self._random.choice([PROTOCOL_VERSION, 0, PROTOCOL_VERSION + 1, 65535])
        return b"TF" + version.to_bytes(2) + length.to_bytes(4) + self._random.randbytes(self._random.randint(0, 30))

    def _deep(self) -> bytes:
        return encode_frame(self._random.choice([b"[", b'{"op":', b'{"op":"x","a":[', b"9"]) * self._random.randint(1, 200))


def attack_handshakes(seed: int, secret: bytes, frames: int) -> Tally:
    """Send at least so many frames to ends of channels, servers' mostly and clients' too, a new one for each conversation.

    Raises whatever an end raises that is no ReservationError: that would be a crash.
    """
    attacker, tally = Attacker(seed, secret), Tally()
    while tally.frames < frames:
        conversation = attacker.conversation()
        tally.frames += len(conversation)
        end = Channel(ClientHandshake(secret, Right.STOP) if tally.frames % 8 == 0 else ServerHandshake(secret))
        try:
            for piece in attacker.pieces(b"".join(conversation)):
                tally.accepted += len(list(end.receive(piece)))
        except ReservationError:
            tally.refused += 1
        tally.accepted += end.authenticated
    return tally


def attack_sessions(seed: int, secret: bytes, frames: int) -> Tally:
    """Put frames between two peers who have proved themselves: changed, repeated, reflected, of other sessions, made up."""
    attacker, tally = Attacker(seed, secret), Tally()
    server, client = _pair(secret, Right.REGISTER)
    other_server, other_client = _pair(secret, Right.REGISTER)
    body = encode_message({"op": "node.news", "text": "x" * 40})
    good = client.seal(body) + body
    assert len(list(server.receive(good))) == 1
    # Each of these is right in another place: it comes again, came the other way, is of another session, or comes too early.
    client.seal(body)  # never sent
    early = client.seal(body) + body
    misplaced = [good, server.seal(body) + body, other_client.seal(body) + body, other_server.seal(body) + body, early]
    while tally.frames < frames:
        frame = misplaced[tally.frames % len(misplaced)]
        tally.frames += 1
        try:
            # A good header, so that the same end can be asked again and again.
            tally.accepted += len(list(server.receive(attacker.payload_change(frame) if tally.frames % 3 else frame)))
        except ReservationError:
            tally.refused += 1
    return tally


def _pair(secret: bytes, right: Right) -> tuple[Channel, Channel]:
    server, client, _ = _meet(secret, right)
    return server, client


def _meet(secret: bytes, right: Right) -> tuple[Channel, Channel, _Recording]:
    server, client, recording = Channel(ServerHandshake(secret)), Channel(ClientHandshake(secret, right)), _Recording(right)
    to_server, to_client = client.take_reply(), server.take_reply()
    while to_server or to_client:
        recording.to_server += [to_server] if to_server else []
        recording.to_client += [to_client] if to_client else []
        list(server.receive(to_server))
        list(client.receive(to_client))
        to_server, to_client = client.take_reply(), server.take_reply()
    return server, client, recording


def _record(secret: bytes, right: Right) -> _Recording:
    server, client, recording = _meet(secret, right)
    for op in (Op.REGISTER, Op.LIST, Op.STOP):
        body = encode_message({"op": str(op), "call": 1})
        recording.to_server.append(client.seal(body) + body)
    body = encode_message({"op": str(Op.CLUSTER), "nodes": []})
    recording.to_client.append(server.seal(body) + body)
    return recording
