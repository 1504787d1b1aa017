from __future__ import annotations

import socket

import pytest

from tfos_core.net import hold_port


def test_a_held_port_is_nobody_elses_and_takes_no_connections() -> None:
    with hold_port() as holder:
        port = holder.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))


def test_who_shares_the_port_gets_all_connections() -> None:
    with hold_port() as holder, hold_port(holder.getsockname()[1]) as server:
        server.listen()
        for _ in range(20):
            with socket.create_connection(server.getsockname(), timeout=10) as client, server.accept()[0] as accepted:
                assert accepted.getpeername() == client.getsockname()


def test_a_port_that_is_taken_is_an_error_and_leaves_no_socket() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            hold_port(other.getsockname()[1])


def test_a_closed_holder_gives_the_port_back() -> None:
    holder = hold_port()
    port = holder.getsockname()[1]
    holder.close()
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))
