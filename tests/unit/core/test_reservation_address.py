from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfos_core.errors import ConfigError, ReservationError
from tfos_core.reservation import Server, address
from tfos_core.reservation.address import default_host, listen, parse_ports
from tfos_core.reservation.port_holder import port_holder

ANY = range(1)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs the whole of 127.0.0.0/8")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", range(1)),
        ("0", range(1)),
        (" 9000 ", range(9000, 9001)),
        ("9000-9010", range(9000, 9011)),
        ("9000-9000", range(9000, 9001)),
    ],
)
def test_a_port_or_a_range_is_understood(text: str, ports: range) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["x", "9000-", "-9000", "9010-9000", "70000", "1-70000", "0-10", "9000,9001", "9000-9001-9002"])
def test_anything_else_is_refused_with_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match="TFOS_SERVER_PORT"):
        parse_ports(text)


@linux_only
def test_a_taken_port_is_named_with_its_holder(taken_port: int) -> None:
    with pytest.raises(ReservationError) as caught:
        listen("127.0.0.1", range(taken_port, taken_port + 1))
    assert f"port {taken_port} is held by process {os.getpid()} (" in str(caught.value)
    assert "TFOS_SERVER_PORT" in str(caught.value.hint)


def test_a_taken_port_without_a_visible_holder_says_so(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "port_holder", lambda port: None)
    with pytest.raises(ReservationError, match=f"port {taken_port} is in use by a process that is not visible"):
        listen("127.0.0.1", range(taken_port, taken_port + 1))


def test_a_range_skips_taken_ports() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        with listen("127.0.0.1", range(port, min(port + 50, 65536))) as second:
            assert port < second.getsockname()[1] < port + 50


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_loopback_host_is_bound_to_loopback_only(host: str) -> None:
    with listen(host, ANY) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["192.0.2.1", "driver.invalid"])
def test_a_host_that_is_not_ours_is_advertised_and_every_interface_is_bound(host: str) -> None:
    with listen(host, ANY) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"


def test_a_name_that_only_this_host_resolves_to_loopback_is_served_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 0))])
    with listen("debian", ANY) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    "found", [[], [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 0))], [(socket.AF_INET, 1, 6, "", ("192.0.2.1", 0))]]
)
def test_a_host_name_without_an_address_of_this_host_falls_back_to_loopback(
    found: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: found)
    assert default_host(lambda: "somewhere") == "127.0.0.1"


def test_the_address_is_found_without_sending_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", forbid)
    monkeypatch.setattr(socket.socket, "sendto", forbid)
    with Server(1, environ={}) as server:
        assert server.address[0]


def test_the_environment_goes_before_the_argument_and_gives_the_port() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    environ = {"TFOS_SERVER_HOST": "localhost", "TFOS_SERVER_PORT": f"{port}-{min(port + 20, 65535)}"}
    with Server(1, host="192.0.2.1", environ=environ) as server:
        host, chosen = server.address
    assert host == "localhost"
    assert port <= chosen <= port + 20


@linux_only
def test_the_holder_of_a_port_is_found_in_proc(taken_port: int) -> None:
    holder = port_holder(taken_port)
    assert holder is not None
    assert holder.startswith(f"process {os.getpid()} (")


def test_a_free_port_and_a_missing_proc_have_no_holder(taken_port: int, tmp_path: Path) -> None:
    assert port_holder(1) is None
    assert port_holder(taken_port, proc=tmp_path) is None


def test_a_holder_of_somebody_else_is_not_visible(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "0: 0100007F:2328 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1"
    (tmp_path / "net" / "tcp").write_text(f"header\n{line}\n")
    assert port_holder(9000, proc=tmp_path) is None
    (tmp_path / "17" / "fd").mkdir(parents=True)
    (tmp_path / "17" / "fd" / "3").symlink_to("socket:[4242]")
    assert port_holder(9000, proc=tmp_path) == "process 17 (name unknown)"
    (tmp_path / "17" / "comm").write_text("java\n")
    assert port_holder(9000, proc=tmp_path) == "process 17 (java)"
