from __future__ import annotations

import gc
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tfos_core.errors import (
    AuthenticationError,
    ChannelClosedError,
    ClusterStateError,
    ConfigError,
    DuplicateNodeError,
    NodeFailedError,
    ProtocolError,
    ReservationError,
    ReservationTimeoutError,
)
from tfos_core.reservation import Client, NodeRecord, Right, Server
from tfos_core.reservation.channel import Channel
from tfos_core.reservation.framing import frame_header
from tfos_core.reservation.handshake import ClientHandshake
from tfos_core.reservation.loop import Limits
from tfos_core.reservation.messages import Op, encode_message
from tfos_core.topology import Role

WAIT_S = 20.0
NAMES = ("worker:0", "worker:1")


def record(executor_id: int, role: Role = Role.WORKER) -> NodeRecord:
    return NodeRecord(executor_id=executor_id, role=role, index=executor_id, host="127.0.0.1", port=2000 + executor_id, pid=50)


@dataclass
class Heard:
    """What a server's callbacks said, in order."""

    events: Queue[tuple[str, Any]] = field(default_factory=Queue)

    def next(self) -> tuple[str, Any]:
        return self.events.get(timeout=WAIT_S)

    def make_server(self, count: Any = NAMES, **options: Any) -> Server:
        return Server(
            count,
            on_message=lambda node, message: self.events.put((node, message)),
            on_registered=lambda record: self.events.put(("registered", record.name)),
            on_disconnect=lambda node: self.events.put(("gone", node)),
            on_stop=lambda: self.events.put(("stop", None)),
            host="127.0.0.1",
            environ={},
            **options,
        )


@pytest.fixture
def heard() -> Heard:
    return Heard()


def descriptor_count() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture(autouse=True)
def no_thread_or_socket_left() -> Iterator[None]:
    gc.collect()  # what an earlier test left as garbage must not be closed while this one counts
    threads, descriptors = threading.active_count(), descriptor_count()
    yield
    assert threading.active_count() == threads
    assert descriptor_count() == descriptors


@pytest.fixture
def server(heard: Heard) -> Iterator[Server]:
    with heard.make_server() as server:
        yield server


def client_of(server: Server, **options: Any) -> Client:
    return Client(server.address, secret=server.secret, timeout=WAIT_S, **options)


def node_that_reads_nothing(server: Server, executor_id: int) -> socket.socket:
    """A registered node without the reader of a Client."""
    sock = socket.create_connection(server.address, timeout=WAIT_S)
    channel = Channel(ClientHandshake(server.secret, Right.REGISTER))
    sock.sendall(channel.take_reply())
    while not channel.authenticated:
        assert list(channel.receive(sock.recv(4096))) == []
        sock.sendall(channel.take_reply())
    body = encode_message({"op": "register", "call": 1, "record": record(executor_id).to_dict()})
    sock.sendall(channel.seal(body) + body)
    return sock


def read_until_closed(sock: socket.socket) -> bytes:
    sock.settimeout(WAIT_S)
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def assert_serves(server: Server) -> None:
    """A newcomer gets a prompt answer."""
    with client_of(server, right=Right.READ) as reader:
        reader.get_reservations()


def test_nodes_register_and_everybody_is_told(server: Server, heard: Heard) -> None:
    with client_of(server) as first, client_of(server) as second, client_of(server, right=Right.READ) as reader:
        first.register(record(0))
        assert [node.name for node in reader.get_reservations()] == ["worker:0"]
        second.register(record(1).to_dict())
        expected = [record(0), record(1)]
        assert server.await_reservations(timeout=WAIT_S) == expected
        assert (
            first.await_reservations(WAIT_S) == second.await_reservations(WAIT_S) == reader.await_reservations(WAIT_S) == expected
        )
        assert first.await_reservations(0) == expected
        with client_of(server, right=Right.READ) as late:
            assert late.await_reservations(WAIT_S) == expected
    assert [heard.next() for _ in range(4)][:2] == [("registered", "worker:0"), ("registered", "worker:1")]


def test_messages_go_both_ways_in_order(server: Server, heard: Heard) -> None:
    with client_of(server) as node:
        node.register(record(0))
        heard.next()
        for number in range(200):
            node.send({"op": "up", "n": number})
            server.send("worker:0", {"op": "down", "n": number})
        server.broadcast({"op": "all"})
        assert [heard.next() for _ in range(200)] == [("worker:0", {"op": "up", "n": n}) for n in range(200)]
        assert [node.receive(WAIT_S) for _ in range(200)] == [{"op": "down", "n": n} for n in range(200)]
        assert node.receive(WAIT_S) == {"op": "all"}
    assert heard.next() == ("gone", "worker:0")
    with pytest.raises(ChannelClosedError, match="worker:0 is not connected"):
        server.send("worker:0", {"op": "down"})


def test_large_messages_go_both_ways(server: Server, heard: Heard) -> None:
    text = "x" * 5_000_000
    with client_of(server) as node:
        node.register(record(0))
        heard.next()
        sender = threading.Thread(target=node.send, args=({"op": "up", "text": text},))
        sender.start()
        server.send("worker:0", {"op": "down", "text": text})
        assert node.receive(WAIT_S)["text"] == text
        assert heard.next() == ("worker:0", {"op": "up", "text": text})
        sender.join(WAIT_S)


def test_what_is_sent_once_the_cluster_is_complete_comes_after_the_announcement(server: Server) -> None:
    with client_of(server) as first, client_of(server) as second:
        first.register(record(0))
        second.register(record(1))
        server.await_reservations(timeout=WAIT_S)
        server.broadcast({"op": "go"})
        for node in (first, second):
            assert node.receive(WAIT_S) == {"op": "go"}
            assert len(node.await_reservations(0)) == 2  # it had come before


def test_a_duplicate_is_refused_with_both_identities_and_the_first_stays(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with client_of(server) as first, client_of(server) as second:
        first.register(record(0))
        with pytest.raises(DuplicateNodeError) as caught:
            second.register(NodeRecord(executor_id=1, role=Role.WORKER, index=0, host="elsewhere", port=1, pid=99))
        assert "elsewhere, port 1, pid 99" in str(caught.value)
        assert record(0).identity in str(caught.value)
        server.send("worker:0", {"op": "still there"})
        assert first.receive(WAIT_S) == {"op": "still there"}
        second.register(record(1))
    assert "pid 99" in caplog.text


def test_unexpected_nodes_and_second_names_are_refused(server: Server) -> None:
    with client_of(server) as node:
        with pytest.raises(ReservationError, match=r"worker:7 .*expects worker:0, worker:1"):
            node.register(record(7))
        node.register(record(0))
        with pytest.raises(ReservationError, match="already belongs to worker:0"):
            node.register(record(1))


def test_missing_nodes_are_named(server: Server) -> None:
    with client_of(server) as node:
        node.register(record(0))
        with pytest.raises(ReservationTimeoutError, match=r"^1 of 2 nodes did not register within 0.05 s: worker:1$") as caught:
            server.await_reservations(timeout=0.05)
        assert caught.value.missing == ("worker:1",)
        with pytest.raises(ReservationTimeoutError, match=r"not complete within 0.05 s"):
            node.await_reservations(0.05)


@pytest.mark.parametrize("how", ["fail", "stop", "status"])
def test_waiting_can_be_ended_from_another_thread(server: Server, how: str) -> None:
    outcome: Queue[Exception] = Queue()
    status: dict[str, object] = {}

    def wait() -> None:
        try:
            server.await_reservations(None, status if how == "status" else None, WAIT_S)
        except ReservationError as exc:
            outcome.put(exc)
        except NodeFailedError as exc:
            outcome.put(exc)

    waiter = threading.Thread(target=wait)
    waiter.start()
    if how == "fail":
        server.fail(NodeFailedError("node worker:0 failed"))
        server.fail(NodeFailedError("a later one"))
    elif how == "stop":
        server.stop()
    else:
        status["error"] = "no executors"
    error = outcome.get(timeout=WAIT_S)
    waiter.join(WAIT_S)
    assert {"fail": "node worker:0 failed", "stop": "was stopped", "status": "no executors"}[how] in str(error)


def test_a_stop_can_be_asked_for_from_outside(server: Server, heard: Heard) -> None:
    with client_of(server) as node:
        assert not server.stop_requested.is_set()
        node.request_stop()
        assert server.stop_requested.wait(WAIT_S)
    assert heard.next() == ("stop", None)


@pytest.mark.parametrize("right", [Right.READ, Right.STOP])
def test_a_right_does_not_serve_for_another(server: Server, right: Right) -> None:
    with client_of(server, right=right) as other:
        with pytest.raises(AuthenticationError, match=f"right to {right} can not ask for 'register'"):
            other.register(record(0))
        if right is Right.STOP:
            with pytest.raises(AuthenticationError, match="can not ask for 'list'"):
                other.get_reservations()
        if right is Right.READ:
            with pytest.raises(AuthenticationError, match="can not ask for 'stop'"):
                other._call(Op.STOP)
    assert not server.stop_requested.is_set()


def test_only_registered_nodes_may_send(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with client_of(server, right=Right.READ) as reader:
        reader.send({"op": "hello there"})
        with pytest.raises(ChannelClosedError):
            reader.receive(WAIT_S)
    assert "without being a registered node" in caplog.text


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(64),
    "oversized": frame_header(1 << 30),
    "not json": frame_header(3) + b"abc",
    "a list": frame_header(2) + b"[]",
    "skips the handshake": frame_header(17) + b'{"op":"register"}',
    "other version": b"TF\x00\x63" + bytes(4),
    "nested": frame_header(1000) + b"[" * 1000,
}


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_is_dropped_with_a_warning_that_names_it(
    server: Server, heard: Heard, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(server) as node:
        node.register(record(0))
        heard.next()
        with socket.create_connection(server.address, timeout=WAIT_S) as stranger:
            peer = "{}:{}".format(*stranger.getsockname())
            stranger.sendall(data)
            read_until_closed(stranger)
        node.send({"op": "unharmed"})
        assert heard.next() == ("worker:0", {"op": "unharmed"})
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
    assert any(peer in text for text in warnings)
    if data is STRANGERS["other version"]:
        assert any("Use the same version of tfos on driver and executors." in text for text in warnings)


def test_a_wrong_secret_is_told_to_both_sides(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AuthenticationError, match="refused our secret"):
        Client(server.address, secret=bytes(32), timeout=WAIT_S)
    assert_serves(server)  # after this answer, the one before is in the log
    assert "does not know the secret of this cluster" in caplog.text


def test_strangers_who_say_nothing_are_dropped_in_time_and_delay_nobody(heard: Heard) -> None:
    limits = Limits(strangers=8, authentication_s=0.4, stranger_grace_s=0.05)
    with heard.make_server(limits=limits) as server:
        loris = [socket.create_connection(server.address, timeout=WAIT_S) for _ in range(20)]
        loris[0].sendall(b"T")
        with client_of(server) as node:
            node.register(record(0))
            for sock in loris:
                read_until_closed(sock)
                sock.close()
            node.send({"op": "x"})
            assert heard.next() == ("registered", "worker:0")
            assert heard.next() == ("worker:0", {"op": "x"})


def test_a_silent_peer_that_has_proved_itself_may_stay(heard: Heard) -> None:
    with heard.make_server(limits=Limits(authentication_s=0.3)) as server, client_of(server, right=Right.READ) as reader:
        with socket.create_connection(server.address, timeout=WAIT_S) as stranger:
            read_until_closed(stranger)  # the time limit has passed
        assert reader.get_reservations() == []


def test_strangers_can_not_fill_the_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(40):
        with socket.create_connection(server.address, timeout=WAIT_S) as stranger:
            stranger.sendall(b"garbage!")
            read_until_closed(stranger)
    warnings = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert 1 <= len(warnings) <= 20


@pytest.mark.parametrize(
    "message",
    [
        {"op": "register"}, {"op": "register", "record": 7}, {"op": "register", "record": {"role": "boss"}, "call": "x"},
        {"op": "await", "call": []}, {"op": "list", "call": 1 << 80}, {"op": "cluster"}, {"op": "proof"}, {"op": ""},
        {"op": "refused"},
    ],
    ids=str,
)  # fmt: skip
def test_malformed_messages_of_an_authenticated_peer_harm_nobody_else(
    server: Server, heard: Heard, message: dict[str, Any]
) -> None:
    with client_of(server) as node, client_of(server) as odd:
        node.register(record(0))
        heard.next()
        if message["op"]:
            odd._send(message)
        else:
            body = b'{"op":7}'
            odd._sock.sendall(odd._channel.seal(body) + body)
        node.send({"op": "unharmed"})
        assert heard.next() == ("worker:0", {"op": "unharmed"})
        assert_serves(server)


def test_a_frame_under_a_wrong_key_drops_its_sender_only(server: Server, heard: Heard) -> None:
    with client_of(server) as node, client_of(server) as odd:
        node.register(record(0))
        odd.register(record(1))
        body = b'{"op":"x"}'
        odd._channel.seal(body)  # a number is skipped
        odd._sock.sendall(odd._channel.seal(body) + body)
        assert [heard.next() for _ in range(3)][2] == ("gone", "worker:1")
        with pytest.raises(ChannelClosedError):
            odd.receive(WAIT_S)
        server.send("worker:0", {"op": "unharmed"})
        assert node.receive(WAIT_S) == {"op": "unharmed"}


def test_an_error_in_a_callback_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: Queue[Any] = Queue()

    def on_message(node: str, message: dict[str, Any]) -> None:
        if message["op"] == "bad":
            raise ProtocolError("it said bad")
        heard.put(message["n"] + 1)

    with Server(2, host="127.0.0.1", environ={}, on_message=on_message) as server, client_of(server) as node:
        node.register(record(0))
        node.send({"op": "x"})
        node.send({"op": "x", "n": 1})
        assert heard.get(timeout=WAIT_S) == 2
        assert "KeyError" in caplog.text
        node.send({"op": "bad"})
        with pytest.raises(ChannelClosedError):
            node.receive(WAIT_S)
    assert "worker:0 (127.0.0.1:" in caplog.text
    assert "it said bad" in caplog.text


def test_a_peer_that_reads_nothing_delays_nobody_and_is_dropped_above_the_bound(
    heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        heard.make_server(limits=Limits(backlog_bytes=1_000_000)) as server,
        node_that_reads_nothing(server, 0),
        client_of(server) as quick,
    ):
        quick.register(record(1))
        assert [heard.next()[0] for _ in range(2)] == ["registered", "registered"]
        with pytest.raises(ChannelClosedError):
            for _ in range(2000):
                server.send("worker:0", {"op": "flood", "text": "x" * 100_000})
                server.send("worker:1", {"op": "ping"})
                assert quick.receive(WAIT_S) == {"op": "ping"}
        assert heard.next() == ("gone", "worker:0")
        assert "worker:0 (127.0.0.1:" in caplog.text
        assert "unread" in caplog.text
        server.send("worker:1", {"op": "ping"})
        assert quick.receive(WAIT_S) == {"op": "ping"}


def test_last_words_of_a_node_are_heard_although_it_is_talked_to(server: Server, heard: Heard) -> None:
    node = client_of(server)
    node.register(record(0))
    heard.next()
    for number in range(50):
        server.send("worker:0", {"op": "never read", "text": "x" * 100_000})
        node.send({"op": "last", "n": number})
    node.close()  # a plain close with unread data would reset the connection
    events = [heard.next()]
    while events[-1][0] != "gone":
        events.append(heard.next())
    assert events[:-1] == [("worker:0", {"op": "last", "n": n}) for n in range(50)]


def test_what_was_sent_before_the_stop_is_delivered(heard: Heard) -> None:
    with heard.make_server() as server, client_of(server) as node:
        node.register(record(0))
        server.send("worker:0", {"op": "bye", "text": "x" * 3_000_000})
        reader: Queue[Any] = Queue()
        thread = threading.Thread(target=lambda: reader.put(node.receive(WAIT_S)))
        thread.start()
        server.stop()
        assert len(reader.get(timeout=WAIT_S)["text"]) == 3_000_000
        thread.join(WAIT_S)
        with pytest.raises(ChannelClosedError, match="closed the connection"):
            node.receive(WAIT_S)


def test_stop_is_bounded_idempotent_and_silent_about_its_own_closing(heard: Heard) -> None:
    server = heard.make_server()
    server.start()
    with node_that_reads_nothing(server, 0), socket.create_connection(server.address, timeout=WAIT_S) as stranger:
        assert heard.next() == ("registered", "worker:0")
        for _ in range(100):
            server.send("worker:0", {"op": "never read", "text": "x" * 100_000})
        before = time.monotonic()
        server.stop()
        server.stop()
        assert time.monotonic() - before < 5
        read_until_closed(stranger)
    assert heard.events.empty()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.address, timeout=WAIT_S)
    with pytest.raises(ChannelClosedError):
        server.send("worker:0", {"op": "x"})
    server.broadcast({"op": "x"})
    with pytest.raises(ClusterStateError):
        server.start()


def test_a_callback_may_stop_the_server() -> None:
    stopped = threading.Event()
    holder: list[Server] = []

    def on_stop() -> None:
        holder[0].stop()
        stopped.set()

    holder.append(Server(1, host="127.0.0.1", environ={}, on_stop=on_stop))
    holder[0].start()
    threads = [thread for thread in threading.enumerate() if thread.name == "tfos-reservation-server"]
    with client_of(holder[0], right=Right.STOP) as client:
        client.request_stop()
        assert stopped.wait(WAIT_S)
    for thread in threads:
        thread.join(WAIT_S)


def test_a_server_must_be_started_and_has_a_usable_count_and_secret() -> None:
    server = Server(1, host="127.0.0.1", environ={})
    with pytest.raises(ClusterStateError, match="no address"):
        _ = server.address
    with pytest.raises(ClusterStateError, match="not started"):
        server.await_reservations(timeout=0)
    server.stop()
    for count in (0, [], ["worker:0", "worker:0"]):
        with pytest.raises(ConfigError):
            Server(count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="5 bytes"):
        Server(1, secret=b"short")


def test_two_hundred_nodes_register_at_once_and_all_are_told(heard: Heard) -> None:
    count = 200
    done: Queue[int] = Queue()

    def run(executor_id: int) -> None:
        with client_of(server) as node:
            node.register(record(executor_id))
            done.put(len(node.await_reservations(WAIT_S)))

    with heard.make_server(count, limits=Limits(strangers=50)) as server:
        threads = [threading.Thread(target=run, args=(executor_id,)) for executor_id in range(count)]
        for thread in threads:
            thread.start()
        assert [node.executor_id for node in server.await_reservations(timeout=WAIT_S)] == list(range(count))
        assert [done.get(timeout=WAIT_S) for _ in range(count)] == [count] * count
        for thread in threads:
            thread.join(WAIT_S)
