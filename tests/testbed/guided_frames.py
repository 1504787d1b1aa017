"""Frames that a fuzzer makes out of which code earlier ones reached: `python guided_frames.py -atheris_runs=N`.

Needs atheris. An input is one conversation of a stranger with one end: raw bytes, bytes in good frames, messages with chosen
values, or frames put into a session of two peers who have proved themselves. What an end raises that is no ReservationError, or
anything that it accepts, ends the process with a trace. `frames.txt` in the working folder says at the end how many frames there
were, and how often an end refused to go on.
"""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tfos_core.reservation"]):
    from tfos_core.reservation.channel import Channel
    from tfos_core.reservation.framing import HANDSHAKE_LIMIT_BYTES, Decoder, encode_frame, frame_header
    from tfos_core.reservation.handshake import ClientHandshake, Right, ServerHandshake
    from tfos_core.reservation.messages import encode_message

from tfos_core.errors import ReservationError

SECRET = bytes(range(32))
WORDS = (
    "hello",
    "proof",
    "denied",
    "register",
    "read",
    "stop",
    "list",
    "cluster",
    "op",
    "nonce",
    "mac",
    "right",
    "call",
    "00" * 32,
)


class Frames:
    """Makes the frames of one input, and counts all of them."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = 0

    def try_one(self, data: bytes) -> None:
        """One conversation."""
        choices = atheris.FuzzedDataProvider(data)
        kind = choices.ConsumeIntInRange(0, 3)
        if kind == 0:
            self._decode(choices)
        elif kind == 1:
            self._session(choices)
        else:
            self._handshake(choices, with_good_hello=kind == 3)

    def _decode(self, choices: atheris.FuzzedDataProvider) -> None:
        """The bytes come in pieces, and what comes out is what a decoder gives that gets them whole."""
        data = self._bytes(choices)
        whole, pieces = Decoder(HANDSHAKE_LIMIT_BYTES), Decoder(HANDSHAKE_LIMIT_BYTES)
        whole.feed(data)
        expected = _payloads(whole)
        found: list[bytes | None] = []
        cut = choices.ConsumeIntInRange(1, 64)
        for start in range(0, len(data), cut):
            pieces.feed(data[start : start + cut])
            found += [payload for payload in _payloads(pieces) if payload is not None]
            if _broken(pieces):
                break
        assert found == [payload for payload in expected if payload is not None]
        assert all(payload is None or len(payload) <= HANDSHAKE_LIMIT_BYTES for payload in expected)

    def _handshake(self, choices: atheris.FuzzedDataProvider, *, with_good_hello: bool) -> None:
        end = Channel(ClientHandshake(SECRET, Right.STOP) if choices.ConsumeBool() else ServerHandshake(SECRET))
        accepted = 0
        try:
            if with_good_hello:
                hello = {"op": "hello", "right": choices.PickValueInList(list(Right)), "nonce": "ab" * 32}
                accepted += len(list(end.receive(encode_frame(encode_message(hello)))))
            while choices.remaining_bytes():
                accepted += len(list(end.receive(self._bytes(choices))))
        except ReservationError:
            self.refused += 1
        assert accepted == 0
        assert not end.authenticated

    def _session(self, choices: atheris.FuzzedDataProvider) -> None:
        """Every payload is made up, or a recorded one with a change; the header is good, so that all of them are looked at."""
        server, client = _pair()
        body = encode_message({"op": "node.news", "text": "x" * 40})
        good = client.seal(body) + body
        accepted = 0
        while choices.remaining_bytes():
            at, bits = choices.ConsumeIntInRange(8, len(good) - 1), choices.ConsumeIntInRange(0, 255)
            changed = bytearray(good)
            changed[at] ^= bits
            made_up = choices.ConsumeBytes(choices.ConsumeIntInRange(0, 80))
            for frame in (bytes(changed) if bits else b"", frame_header(len(made_up)) + made_up):
                if not frame:
                    continue
                self.count += 1
                try:
                    accepted += len(list(server.receive(frame)))
                except ReservationError:
                    self.refused += 1
        assert accepted == 0
        # The peer itself is still understood.
        assert [message["op"] for message in server.receive(good)] == ["node.news"]

    def _bytes(self, choices: atheris.FuzzedDataProvider) -> bytes:
        """One frame or more, of one of several makes."""
        self.count += 1
        make = choices.ConsumeIntInRange(0, 3)
        if make == 0:
            return choices.ConsumeBytes(choices.ConsumeIntInRange(0, 200)) or b"\0"
        if make == 1:
            return encode_frame(choices.ConsumeBytes(choices.ConsumeIntInRange(0, 200)))
        if make == 2:
            size = choices.ConsumeIntInRange(0, 2 * HANDSHAKE_LIMIT_BYTES)
            return frame_header(size) + choices.ConsumeBytes(choices.ConsumeIntInRange(0, 200))
        return encode_frame(json.dumps(dict(self._fields(choices))).encode())

    def _fields(self, choices: atheris.FuzzedDataProvider) -> Iterator[tuple[str, object]]:
        for _ in range(choices.ConsumeIntInRange(0, 4)):
            name = choices.PickValueInList(list(WORDS))
            how = choices.ConsumeIntInRange(0, 3)
            if how == 0:
                yield name, choices.PickValueInList(list(WORDS))
            elif how == 1:
                yield name, choices.ConsumeBytes(32).hex()
            elif how == 2:
                yield name, choices.ConsumeInt(8)
            else:
                yield name, choices.ConsumeUnicode(choices.ConsumeIntInRange(0, 70))


def _payloads(decoder: Decoder) -> list[bytes | None]:
    """All that a decoder has; None at the end when it refuses the rest."""
    found: list[bytes | None] = []
    try:
        while (payload := decoder.next_payload()) is not None:
            found.append(payload)
    except ReservationError:
        found.append(None)
    return found


def _broken(decoder: Decoder) -> bool:
    return _payloads(decoder)[-1:] == [None]


def _pair() -> tuple[Channel, Channel]:
    server, client = Channel(ServerHandshake(SECRET)), Channel(ClientHandshake(SECRET, Right.REGISTER))
    to_server, to_client = client.take_reply(), server.take_reply()
    while to_server or to_client:
        list(server.receive(to_server))
        list(client.receive(to_client))
        to_server, to_client = client.take_reply(), server.take_reply()
    return server, client


def main() -> None:
    """Fuzz until all runs are over."""
    frames = Frames()
    tally = Path("frames.txt")
    atexit.register(lambda: tally.write_text(f"{frames.count} {frames.refused}"))
    atheris.Setup(sys.argv, frames.try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
