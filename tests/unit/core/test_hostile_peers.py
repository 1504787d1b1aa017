"""Somebody who reaches the ports and sockets of a job and does not know its secret."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.hostile_frames import Attacker, attack_handshakes, attack_sessions

from tfos_core.errors import AuthenticationError, FeedError
from tfos_core.feed import wire
from tfos_core.reservation import Client, NodeRecord, Right, Server
from tfos_core.reservation.loop import Limits
from tfos_core.topology import Role

SECRET = bytes(range(32))
WAIT_S = 30.0
QUICK = settings(max_examples=20, deadline=None)


def record(index: int) -> NodeRecord:
    return NodeRecord(executor_id=index, role=Role.WORKER, index=index, host="127.0.0.1", port=2000 + index, pid=50)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("worker:0", "worker:1"), secret=SECRET, host="127.0.0.1", environ={}) as server:
        yield server


def honest(server: Server, right: Right = Right.REGISTER) -> Client:
    return Client(server.address, secret=SECRET, right=right, timeout=WAIT_S)


@QUICK
@given(seed=st.integers(0, 2**64))
def test_no_frame_of_a_stranger_is_accepted_or_breaks_an_end(seed: int) -> None:
    tally = attack_handshakes(seed, SECRET, 200)
    assert tally.frames >= 200
    assert tally.accepted == 0
    assert tally.refused


@QUICK
@given(seed=st.integers(0, 2**64))
def test_no_frame_is_accepted_that_was_not_sent_in_this_session_at_this_place(seed: int) -> None:
    tally = attack_sessions(seed, SECRET, 200)
    assert (tally.frames, tally.accepted, tally.refused) == (200, 0, 200)


def test_the_attack_gets_in_where_nonces_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is known to find something."""
    monkeypatch.setattr("tfos_core.reservation.handshake.secrets.token_bytes", bytes)
    assert attack_handshakes(1, SECRET, 2000).accepted


@QUICK
@given(data=st.binary(min_size=wire.HEADER_BYTES, max_size=wire.HEADER_BYTES), body=st.binary(max_size=100))
def test_a_damaged_feed_frame_is_a_feed_error(data: bytes, body: bytes) -> None:
    with contextlib.suppress(FeedError):
        wire.unpack_header(data)
    for text in (body, b"[" * 5000, b"\xff" + body):
        with contextlib.suppress(FeedError):
            assert isinstance(wire.unpack_json(text), dict)


def test_a_stranger_neither_registers_nor_reads_nor_stops_nor_stalls_a_cluster(server: Server) -> None:
    attacker = Attacker(7, SECRET)
    with honest(server) as node, honest(server, Right.READ) as reader:
        node.register(record(0))
        for _ in range(150):
            with socket.create_connection(server.address, timeout=WAIT_S) as stranger, contextlib.suppress(OSError):
                stranger.sendall(b"".join(attacker.conversation()))
                stranger.settimeout(0.01)
                assert b"worker" not in stranger.recv(65536)
        for right in Right:
            with pytest.raises(AuthenticationError):
                Client(server.address, secret=bytes(32), right=right, timeout=WAIT_S)
        assert [entry.name for entry in reader.get_reservations()] == ["worker:0"]
        assert not server.stop_requested.is_set()
        with honest(server) as other:
            other.register(record(1))
            assert len(node.await_reservations(WAIT_S)) == 2
        server.send("worker:0", {"op": "still there"})
        assert node.receive(WAIT_S) == {"op": "still there"}


def test_the_right_to_read_or_register_is_none_to_stop(server: Server) -> None:
    with honest(server, Right.READ) as reader:
        with pytest.raises(AuthenticationError, match="right to read"):
            reader.register(record(0))
        with pytest.raises(AuthenticationError, match="right to read"):
            reader._call("stop")
    with honest(server) as node, pytest.raises(AuthenticationError, match="right to register"):
        node._call("stop")
    assert not server.stop_requested.is_set()


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="needs addresses of loopback other than 127.0.0.1")
@pytest.mark.parametrize("said", [b"", b"TF", b"TF\x00\x01\x00\x00\x00\x40"], ids=["nothing", "half a header", "a header"])
def test_a_host_full_of_slow_peers_delays_no_node_of_another_host(said: bytes) -> None:
    limits = Limits(strangers=32, authentication_s=3600, stranger_grace_s=1)
    crowd: list[socket.socket] = []
    with Server(1, secret=SECRET, host="127.0.0.1", environ={}, limits=limits) as server, contextlib.ExitStack() as stack:
        over = threading.Event()

        def come_back() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    stranger = socket.create_connection(server.address, timeout=WAIT_S, source_address=("127.0.0.9", 0))
                    stack.callback(stranger.close)
                    stranger.sendall(said)
                    crowd.append(stranger)
                over.wait(0.002)

        thread = threading.Thread(target=come_back)
        thread.start()
        try:
            deadline = time.monotonic() + WAIT_S
            while len(crowd) < 64 and time.monotonic() < deadline:
                over.wait(0.01)
            with honest(server) as node:
                node.register(record(0))
                assert len(node.await_reservations(WAIT_S)) == 1
        finally:
            over.set()
            thread.join(WAIT_S)


def test_a_node_that_has_registered_is_not_touched_by_a_flood(server: Server) -> None:
    with honest(server) as node:
        node.register(record(0))
        strangers = [socket.create_connection(server.address, timeout=WAIT_S) for _ in range(300)]
        try:
            for number in range(20):
                server.send("worker:0", {"op": "x", "n": number})
                assert node.receive(WAIT_S)["n"] == number
        finally:
            for stranger in strangers:
                stranger.close()
