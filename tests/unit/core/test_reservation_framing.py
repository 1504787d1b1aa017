from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_core.errors import ProtocolError, ReservationError
from tfos_core.reservation.framing import HANDSHAKE_LIMIT_BYTES, PROTOCOL_VERSION, Decoder, encode_frame, frame_header
from tfos_core.reservation.messages import MESSAGE_LIMIT_BYTES, check_user_message, decode_message, encode_message

TWO_FRAMES = encode_frame(b"first") + encode_frame(b"") + encode_frame(b'{"op":"third"}')


def drain(decoder: Decoder) -> list[bytes]:
    payloads = []
    while (payload := decoder.next_payload()) is not None:
        payloads.append(payload)
    return payloads


@pytest.mark.parametrize("cut", range(len(TWO_FRAMES) + 1))
def test_frames_survive_a_cut_at_any_position(cut: int) -> None:
    decoder = Decoder()
    decoder.feed(TWO_FRAMES[:cut])
    got = drain(decoder)
    decoder.feed(TWO_FRAMES[cut:])
    assert got + drain(decoder) == [b"first", b"", b'{"op":"third"}']


def test_frames_survive_arriving_byte_by_byte() -> None:
    decoder, got = Decoder(), []
    for position in range(len(TWO_FRAMES)):
        decoder.feed(TWO_FRAMES[position : position + 1])
        got += drain(decoder)
    assert got == [b"first", b"", b'{"op":"third"}']


@given(payloads=st.lists(st.binary(max_size=300), max_size=6), cuts=st.lists(st.integers(0, 2000), max_size=10))
@settings(max_examples=150, deadline=None)
def test_any_payloads_survive_any_cuts(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, payloads))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder, got = Decoder(), []
    for start, end in itertools.pairwise(edges):
        decoder.feed(stream[start:end])
        got += drain(decoder)
    assert got == payloads


@given(garbage=st.binary(min_size=1, max_size=2000))
@settings(max_examples=200, deadline=None)
def test_garbage_gives_payloads_or_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    decoder = Decoder()
    decoder.feed(garbage)
    try:
        drain(decoder)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            drain(decoder)


def test_a_frame_above_the_limit_is_refused_before_its_payload_arrives() -> None:
    decoder = Decoder()
    decoder.feed(frame_header(HANDSHAKE_LIMIT_BYTES + 1))
    with pytest.raises(ProtocolError, match="1025 bytes, and at most 1024"):
        decoder.next_payload()


def test_a_frame_at_the_limit_is_taken_and_the_limit_can_be_raised_between_frames() -> None:
    decoder = Decoder()
    decoder.feed(encode_frame(b"x" * HANDSHAKE_LIMIT_BYTES) + encode_frame(b"y" * 5000))
    assert decoder.next_payload() == b"x" * HANDSHAKE_LIMIT_BYTES
    decoder.limit_bytes = 5000
    assert decoder.next_payload() == b"y" * 5000


def test_a_peer_of_another_kind_is_noticed_by_its_first_byte() -> None:
    decoder = Decoder()
    decoder.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(ProtocolError, match=r"does not speak the tfos control protocol.*GET / HTTP"):
        decoder.next_payload()
    decoder = Decoder()
    decoder.feed(b"\0")
    with pytest.raises(ProtocolError):
        decoder.next_payload()


def test_another_version_says_what_to_do() -> None:
    decoder = Decoder()
    decoder.feed(struct.pack("!2sHI", b"TF", PROTOCOL_VERSION + 1, 0))
    with pytest.raises(ProtocolError, match=rf"version {PROTOCOL_VERSION + 1} .*version {PROTOCOL_VERSION}") as caught:
        decoder.next_payload()
    assert caught.value.hint == "Use the same version of tfos on driver and executors."


def test_messages_round_trip() -> None:
    message = {"op": "x", "text": "é \ud800 \U0001f600", "n": [1, 2.5, None, True]}
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{}", b'{"op":1}', b"\xff\xfe", b"[" * 900, b"[" * 200_000, b"1" * 5000, b'{"op":"x"', b'"op"'],
    ids=lambda body: repr(body[:12]),
)
def test_a_body_that_is_no_message_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_message(body)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({}, "needs an 'op'"),
        ({"op": 3}, "needs an 'op'"),
        ({"op": "x", "value": object()}, "can not be written as JSON"),
        ({"op": "x", "value": b"bytes"}, "can not be written as JSON"),
        ({"op": "x", "value": "y" * MESSAGE_LIMIT_BYTES}, "at most 16777216"),
    ],
    ids=["no op", "op is a number", "object", "bytes", "too large"],
)
def test_what_can_not_be_sent_is_refused_on_the_sending_side(message: dict[str, object], text: str) -> None:
    with pytest.raises(ReservationError, match=text) as caught:
        encode_message(message)
    assert not isinstance(caught.value, ProtocolError)


def test_ops_of_the_channel_can_not_be_taken_by_its_users() -> None:
    check_user_message({"op": "feed.progress"})
    with pytest.raises(ReservationError, match="'cluster' belongs to the control channel"):
        check_user_message({"op": "cluster"})
