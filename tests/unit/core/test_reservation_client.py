from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from tfos_core.errors import (
    AuthenticationError,
    ChannelClosedError,
    ConfigError,
    ProtocolError,
    ReservationError,
    ReservationTimeoutError,
)
from tfos_core.reservation import Client, NodeRecord, Right, Server
from tfos_core.reservation.address import listen
from tfos_core.reservation.channel import Channel
from tfos_core.reservation.handshake import ServerHandshake
from tfos_core.topology import Role

WAIT_S = 20.0
SECRET = bytes(range(32))
NODE = NodeRecord(executor_id=0, role=Role.WORKER, index=0, host="127.0.0.1", port=2000, pid=50)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(1, host="127.0.0.1", environ={}) as server:
        yield server


@pytest.fixture
def node(server: Server) -> Iterator[Client]:
    with Client(server.address, timeout=WAIT_S) as client:
        client.register(NODE)
        client.await_reservations(WAIT_S)
        yield client


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(WAIT_S)
        yield sock


def answer_with(listener: socket.socket, data: bytes) -> threading.Thread:
    """A server of another kind: says one thing to the first who comes, and closes once they do."""

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(WAIT_S)
            sock.sendall(data)
            while sock.recv(4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def accept_and_read_nothing(listener: socket.socket) -> tuple[Queue[socket.socket], threading.Thread]:
    """A server that goes through the handshake and then neither reads nor says anything."""
    accepted: Queue[socket.socket] = Queue()

    def accept() -> None:
        sock, _ = listener.accept()
        channel = Channel(ServerHandshake(SECRET))
        sock.sendall(channel.take_reply())
        while not channel.authenticated:
            list(channel.receive(sock.recv(4096)))
        sock.sendall(channel.take_reply())
        accepted.put(sock)

    thread = threading.Thread(target=accept)
    thread.start()
    return accepted, thread


def test_a_server_of_this_process_is_used_without_handing_over_its_secret(server: Server) -> None:
    with Client(list(server.address)) as client:
        assert client.get_reservations() == []


def test_a_server_elsewhere_needs_a_secret_and_a_stopped_one_is_elsewhere(server: Server) -> None:
    with pytest.raises(ConfigError, match=r"no secret was given .*127.0.0.1:1,"):
        Client(("127.0.0.1", 1))
    server.stop()
    with pytest.raises(ConfigError, match="no secret was given"):
        Client(server.address)
    with Server(1, secret=SECRET, host="127.0.0.1", environ={}) as given, pytest.raises(ConfigError, match="no secret was given"):
        Client(given.address)


def test_a_server_that_is_not_there_is_named_after_the_deadline(listener: socket.socket) -> None:
    address = listener.getsockname()
    listener.close()
    with pytest.raises(ChannelClosedError, match=r"127.0.0.1:\d+ within 0.2 s: .*refused") as caught:
        Client(address, secret=SECRET, timeout=0.2)
    assert "TFOS_SERVER_HOST" in str(caught.value.hint)


def test_attempts_to_connect_end_when_nobody_waits_for_them_any_more(listener: socket.socket) -> None:
    """An executor that ends with its driver must not leave a process that looks for the driver for half a minute."""
    address = listener.getsockname()
    listener.close()
    executor, watched = socket.socketpair()
    with executor, watched:
        threading.Timer(0.2, executor.close).start()
        started = time.monotonic()
        with pytest.raises(ChannelClosedError, match="nobody waits for a connection"):
            Client(address, secret=SECRET, timeout=30, gone=watched.fileno())
    assert time.monotonic() - started < 5


def test_a_server_that_starts_late_is_waited_for() -> None:
    with listen("127.0.0.1", range(1)) as reserved:
        port = reserved.getsockname()[1]
    connected: Queue[Any] = Queue()

    def connect() -> None:
        with Client(("127.0.0.1", port), secret=SECRET, timeout=WAIT_S) as client:
            connected.put(client.get_reservations())

    thread = threading.Thread(target=connect)
    thread.start()
    with Server(1, secret=SECRET, host="127.0.0.1", environ={"TFOS_SERVER_PORT": str(port)}):
        assert connected.get(timeout=WAIT_S) == []
        thread.join(WAIT_S)


def test_a_server_that_says_nothing_is_given_up_at_the_deadline(listener: socket.socket) -> None:
    with pytest.raises(ChannelClosedError, match="accepted the connection but said nothing"):
        Client(listener.getsockname(), secret=SECRET, timeout=0.2)


def test_a_server_of_another_version_says_what_to_do(listener: socket.socket) -> None:
    thread = answer_with(listener, struct.pack("!2sHI", b"TF", 99, 0))
    with pytest.raises(ProtocolError, match=r"speaks version 99 .* speaks version 1") as caught:
        Client(listener.getsockname(), secret=SECRET, timeout=WAIT_S)
    assert caught.value.hint == "Use the same version of tfos on driver and executors."
    thread.join(WAIT_S)


def test_something_else_on_that_port_is_named(listener: socket.socket) -> None:
    thread = answer_with(listener, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ProtocolError, match=r"what answers at 127.0.0.1:\d+ is no reservation server .*HTTP"):
        Client(listener.getsockname(), secret=SECRET, timeout=WAIT_S)
    thread.join(WAIT_S)


def test_a_server_with_another_secret_is_refused_without_more_tries(server: Server) -> None:
    with pytest.raises(AuthenticationError, match="refused our secret"):
        Client(server.address, secret=SECRET, timeout=WAIT_S)


def test_receive_has_a_deadline_and_calls_work_while_another_thread_receives(server: Server, node: Client) -> None:
    with pytest.raises(ReservationTimeoutError, match=r"no message came .* within 0.01 s"):
        node.receive(0.01)
    got: Queue[Any] = Queue()
    thread = threading.Thread(target=lambda: got.put(node.receive()))
    thread.start()
    for _ in range(20):
        assert node.get_reservations() == [NODE]
    server.send("worker:0", {"op": "x"})
    assert got.get(timeout=WAIT_S) == {"op": "x"}
    thread.join(WAIT_S)


def test_many_threads_may_send_and_call_at_once(server: Server) -> None:
    heard: Queue[Any] = Queue()
    with (
        Server(1, host="127.0.0.1", environ={}, on_message=lambda _, message: heard.put(message["n"])) as server,
        Client(server.address) as node,
    ):
        node.register(NODE)

        def run(first: int) -> None:
            for number in range(first, first + 50):
                node.send({"op": "x", "n": number, "text": "y" * (number * 100)})
                node.get_reservations()

        threads = [threading.Thread(target=run, args=(first,)) for first in range(0, 400, 50)]
        for thread in threads:
            thread.start()
        assert sorted(heard.get(timeout=WAIT_S) for _ in range(400)) == list(range(400))
        for thread in threads:
            thread.join(WAIT_S)


def test_a_selector_loop_gets_everything_and_the_end(server: Server, node: Client) -> None:
    server.send("worker:0", {"op": "n", "n": -1})
    assert node.get_reservations() == [NODE]  # the message before the answer is read along with it
    assert node.receive_available() == [{"op": "n", "n": -1}]
    assert node.receive_available() == []
    for number in range(100):
        server.send("worker:0", {"op": "n", "n": number, "text": "x" * 20_000})
    server.stop()
    got: list[int] = []
    with selectors.DefaultSelector() as selector:
        selector.register(node, selectors.EVENT_READ)
        with pytest.raises(ChannelClosedError, match="closed the connection"):
            while selector.select(WAIT_S):
                got += [message["n"] for message in node.receive_available()]
    assert got == list(range(100))


@pytest.mark.parametrize("waiting", ["receive", "send"])
def test_close_wakes_a_thread_that_waits(listener: socket.socket, waiting: str) -> None:
    accepted, accepting = accept_and_read_nothing(listener)
    node = Client(listener.getsockname(), secret=SECRET, timeout=WAIT_S)
    outcome: Queue[Exception] = Queue()

    def wait() -> None:
        try:
            while True:
                if waiting == "receive":
                    node.receive()
                else:
                    node.send({"op": "x", "text": "y" * 1_000_000})
        except ReservationError as exc:
            outcome.put(exc)

    with accepted.get(timeout=WAIT_S):
        thread = threading.Thread(target=wait)
        thread.start()
        node.close()
        node.close()
        assert isinstance(outcome.get(timeout=WAIT_S), ChannelClosedError)
        thread.join(WAIT_S)
    accepting.join(WAIT_S)
    assert node.fileno() == -1
    for use in (node.receive_available, node.get_reservations, node.receive, lambda: node.send({"op": "x"})):
        with pytest.raises(ChannelClosedError, match="closed on this side"):
            use()


def test_a_server_that_takes_nothing_ends_a_send_at_the_deadline(listener: socket.socket) -> None:
    accepted, accepting = accept_and_read_nothing(listener)
    with Client(listener.getsockname(), secret=SECRET, timeout=0.5) as node, accepted.get(timeout=WAIT_S):
        with pytest.raises(ChannelClosedError, match=r"did not take a message within 0.5 s"):
            for _ in range(100):
                node.send({"op": "x", "text": "y" * 1_000_000})
        with pytest.raises(ChannelClosedError):
            node.send({"op": "x"})
    accepting.join(WAIT_S)


def test_a_bad_frame_of_the_server_ends_the_connection_with_its_reason(server: Server, node: Client) -> None:
    (connection,) = server._nodes.values()
    with connection._lock:
        connection.channel.seal(b"")  # a number is skipped
    server.send("worker:0", {"op": "x"})
    with pytest.raises(ProtocolError, match=r"the reservation server at .* broke the protocol: .*out of turn"):
        node.receive(WAIT_S)


def test_own_ops_and_bad_messages_are_refused_before_anything_is_sent(server: Server, node: Client) -> None:
    for message in ({"op": "cluster"}, {"op": "x", "value": b"1"}, {}):
        with pytest.raises(ReservationError):
            node.send(message)
        with pytest.raises(ReservationError):
            server.send("worker:0", message)
        with pytest.raises(ReservationError):
            server.broadcast(message)
    server.send("worker:0", {"op": "fine"})
    assert node.receive(WAIT_S) == {"op": "fine"}


def test_a_reader_that_came_before_the_nodes_is_told_when_they_are_complete(server: Server) -> None:
    told: Queue[Any] = Queue()
    with Client(server.address, right=Right.READ) as reader:
        thread = threading.Thread(target=lambda: told.put(reader.await_reservations(WAIT_S)))
        thread.start()
        with Client(server.address) as node:
            node.register(NODE)
            assert told.get(timeout=WAIT_S) == [NODE]
        thread.join(WAIT_S)
