from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_core.errors import AuthenticationError, ProtocolError
from tfos_core.reservation.channel import Channel, denial
from tfos_core.reservation.framing import encode_frame
from tfos_core.reservation.handshake import ClientHandshake, Right, ServerHandshake, Session, derive_key, new_secret
from tfos_core.reservation.messages import encode_message

SECRET = bytes(range(32))
OTHER = bytes(32)


def agree(server: Channel, client: Channel) -> None:
    """Carry bytes both ways until neither has anything to say."""
    to_server, to_client = client.take_reply(), server.take_reply()
    while to_server or to_client:
        assert list(server.receive(to_server)) == []
        assert list(client.receive(to_client)) == []
        to_server, to_client = client.take_reply(), server.take_reply()


def pair(right: Right = Right.REGISTER) -> tuple[Channel, Channel]:
    server, client = Channel(ServerHandshake(SECRET)), Channel(ClientHandshake(SECRET, right))
    agree(server, client)
    return server, client


def frame(channel: Channel, **message: object) -> bytes:
    body = encode_message(message)
    return channel.seal(body) + body


@pytest.mark.parametrize("right", Right)
def test_two_who_know_the_secret_agree(right: Right) -> None:
    server, client = pair(right)
    assert server.authenticated
    assert client.authenticated
    assert server.right == right
    assert list(server.receive(frame(client, op="a", n=1) + frame(client, op="b"))) == [{"op": "a", "n": 1}, {"op": "b"}]
    assert list(client.receive(frame(server, op="c"))) == [{"op": "c"}]


def test_a_client_with_another_secret_is_refused() -> None:
    with pytest.raises(AuthenticationError, match=r"does not know the secret.*right to register"):
        agree(Channel(ServerHandshake(SECRET)), Channel(ClientHandshake(OTHER, Right.REGISTER)))


def test_a_client_tells_when_its_proof_was_refused() -> None:
    client = Channel(ClientHandshake(OTHER, Right.STOP))
    with pytest.raises(AuthenticationError, match=r"refused our secret .*right to stop"):
        list(client.receive(denial()))


def test_a_server_that_does_not_know_the_secret_is_refused_by_the_client() -> None:
    client = ClientHandshake(SECRET, Right.REGISTER)
    client.receive(ServerHandshake(OTHER).opening())
    with pytest.raises(AuthenticationError, match="it does not know the secret"):
        client.receive({"op": "proof", "mac": "00" * 32})
    assert client.session is None


def test_a_proof_sent_back_to_its_maker_proves_nothing() -> None:
    client = ClientHandshake(SECRET, Right.REGISTER)
    proof = client.receive({"op": "hello", "nonce": client.opening()["nonce"]})
    assert proof is not None
    with pytest.raises(AuthenticationError):
        client.receive(proof)


def test_a_recorded_handshake_is_worth_nothing_to_another_server() -> None:
    first, second = ServerHandshake(SECRET), ServerHandshake(SECRET)
    client = ClientHandshake(SECRET, Right.REGISTER)
    hello = client.opening()
    proof = client.receive(first.opening())
    assert proof is not None
    first.receive(hello)
    first.receive(proof)
    assert first.session is not None
    second.receive(hello)
    with pytest.raises(AuthenticationError):
        second.receive(proof)


def test_keys_of_rights_differ_and_one_does_not_serve_for_another() -> None:
    assert len({derive_key(SECRET, right) for right in Right} | {SECRET}) == 4
    server, client = ServerHandshake(SECRET), ClientHandshake(SECRET, Right.READ)
    proof = client.receive(server.opening())
    assert proof is not None
    server.receive(client.opening() | {"right": "stop"})
    with pytest.raises(AuthenticationError):
        server.receive(proof)


def test_secrets_and_nonces_are_fresh() -> None:
    assert len({new_secret() for _ in range(20)}) == 20
    assert len({ServerHandshake(SECRET).opening()["nonce"] for _ in range(20)}) == 20
    assert len({ClientHandshake(SECRET, Right.READ).opening()["nonce"] for _ in range(20)}) == 20


@pytest.mark.parametrize("direction", ["to server", "to client"])
def test_a_frame_can_not_be_repeated_reflected_skipped_or_changed(direction: str) -> None:
    def fresh() -> tuple[Channel, Channel]:
        server, client = pair()
        return (client, server) if direction == "to server" else (server, client)

    sender, receiver = fresh()
    data = frame(sender, op="x")
    list(receiver.receive(data))
    with pytest.raises(ProtocolError, match="out of turn"):
        list(receiver.receive(data))

    sender, _ = fresh()
    with pytest.raises(ProtocolError, match="wrong signature"):
        list(sender.receive(frame(sender, op="x")))

    sender, receiver = fresh()
    frame(sender, op="lost")
    with pytest.raises(ProtocolError, match="out of turn"):
        list(receiver.receive(frame(sender, op="x")))

    for position in range(8, len(data)):
        sender, receiver = fresh()
        changed = bytearray(frame(sender, op="x"))
        changed[position] ^= 1
        with pytest.raises(ProtocolError, match="wrong signature"):
            list(receiver.receive(bytes(changed)))


def test_a_session_does_not_open_frames_of_another_session() -> None:
    _, client = pair()
    other_server, _ = pair()
    with pytest.raises(ProtocolError, match="wrong signature"):
        list(other_server.receive(frame(client, op="x")))


def test_a_payload_shorter_than_a_seal_is_refused() -> None:
    session = Session(send_key=SECRET, receive_key=SECRET)
    for size in range(41):
        with pytest.raises(ProtocolError):
            session.open(bytes(size))


def test_a_message_can_not_be_sent_before_the_handshake_is_over() -> None:
    with pytest.raises(ProtocolError, match="before the handshake was over"):
        Channel(ServerHandshake(SECRET)).seal(b"{}")


def test_good_messages_before_a_bad_frame_are_given_out() -> None:
    server, client = pair()
    got = []
    with pytest.raises(ProtocolError):
        got.extend(message["op"] for message in server.receive(frame(client, op="last words") + b"garbage"))
    assert got == ["last words"]


def test_large_frames_are_allowed_only_after_the_handshake() -> None:
    server, client = pair()
    (message,) = server.receive(frame(client, op="x", text="y" * 100_000))
    assert len(message["text"]) == 100_000
    with pytest.raises(ProtocolError, match="at most 1024"):
        list(Channel(ServerHandshake(SECRET)).receive(encode_frame(b"x" * 2000)))


HELLO = {"op": "hello", "right": "read", "nonce": "ab" * 32}


@pytest.mark.parametrize(
    "message",
    [
        {"op": "proof", "mac": "00" * 32},
        {"op": "register"},
        HELLO | {"right": "root"},
        HELLO | {"right": None},
        HELLO | {"right": ["read"]},
        HELLO | {"nonce": ""},
        HELLO | {"nonce": "ab" * 31},
        HELLO | {"nonce": "zz" * 32},
        HELLO | {"nonce": 7},
    ],
    ids=lambda message: json.dumps(message)[:50],
)
def test_a_first_message_that_is_no_hello_is_refused(message: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        ServerHandshake(SECRET).receive(message)


def test_a_handshake_can_not_be_gone_through_twice() -> None:
    server, client = ServerHandshake(SECRET), ClientHandshake(SECRET, Right.READ)
    server.receive(client.opening())
    with pytest.raises(ProtocolError, match="where 'proof' comes next"):
        server.receive(client.opening())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=70) | st.sampled_from(["read", "stop", "ab" * 32]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
messages = st.fixed_dictionaries(
    {"op": st.sampled_from(["hello", "proof", "denied", "register"])},
    optional={"right": values, "nonce": values, "mac": values},
)


@given(conversation=st.lists(messages | st.just(HELLO), max_size=5), raw=st.binary(max_size=40), serving=st.booleans())
@settings(max_examples=300, deadline=None)
def test_no_conversation_without_the_secret_authenticates_or_breaks_anything(
    conversation: list[dict[str, object]], raw: bytes, serving: bool
) -> None:
    channel = Channel(ServerHandshake(SECRET) if serving else ClientHandshake(SECRET, Right.READ))
    data = b"".join(encode_frame(encode_message(message)) for message in conversation) + raw
    with contextlib.suppress(ProtocolError):
        assert list(channel.receive(data)) == []
    assert not channel.authenticated


@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(1, 60))
@settings(max_examples=200, deadline=None)
def test_a_changed_conversation_never_gives_a_message_that_was_not_sent(position: int, value: int, cut: int) -> None:
    server, client = pair()
    data = bytearray(b"".join(frame(client, op="x", n=n) for n in range(3)))
    data[position % len(data)] = value
    got = []
    try:
        for start in range(0, len(data), cut):
            got += server.receive(bytes(data[start : start + cut]))
    except ProtocolError:
        pass
    assert got == [{"op": "x", "n": n} for n in range(3)][: len(got)]
