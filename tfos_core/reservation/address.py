"""Where the server listens, and the address that it tells to nodes. Asks only the host's own resolver, never the internet."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable

from tfos_core.errors import ConfigError, ReservationError
from tfos_core.reservation.port_holder import port_holder

__all__ = ("HOST_VARIABLE", "PORT_VARIABLE", "default_host", "listen", "parse_ports")

HOST_VARIABLE = "TFOS_SERVER_HOST"
PORT_VARIABLE = "TFOS_SERVER_PORT"

_LOOPBACK = "127.0.0.1"
#: As many nodes as this may connect in the same moment (the kernel's own limit may be lower).
_BACKLOG = 4096


def parse_ports(text: str) -> range:
    """The ports named by `9000` or `9000-9010`; an empty text or 0 lets the kernel choose.

    Raises:
        ConfigError: the text is neither.
    """
    first, dash, last = text.strip().partition("-")
    try:
        low = int(first or "0")
        high = int(last) if dash else low
    except ValueError:
        low, high = 1, 0
    if not 0 <= low <= high <= 65535 or (low == 0 and high > 0):
        raise ConfigError(f"{PORT_VARIABLE} is {text!r}", "Give a port such as 9000, or a range such as 9000-9010.")
    return range(low, high + 1)


def default_host(hostname: Callable[[], str] = socket.gethostname) -> str:
    """The address of this host's name when it is an address of this host, otherwise loopback."""
    for family, address in _resolve(hostname()):
        if not ipaddress.ip_address(address).is_loopback and _can_bind(family, address):
            return address
    return _LOOPBACK


def listen(host: str, ports: range) -> socket.socket:
    """A listening socket that is reached under `host`, on the first free port.

    A loopback host is bound as such. Otherwise the host's own address is bound, or every interface when it is none of this
    machine's (a container, a name that only others resolve): what is advertised need not be what is bound.

    Raises:
        ReservationError: no port is free; the message names who holds the ports.
    """
    taken: list[str] = []
    for port in ports:
        for family, address in _bind_candidates(host):
            try:
                return _listening_socket(family, address, port)
            except OSError as exc:
                if exc.errno == errno.EADDRNOTAVAIL:
                    continue
                if exc.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise ReservationError(
                        f"the reservation server can not listen on {address} port {port}: {exc.strerror}"
                    ) from exc
                taken.append(_why_taken(port, exc))
                break
        else:
            raise ReservationError(
                f"the reservation server can not listen on {host!r}: it is no address of this machine",
                f"Set {HOST_VARIABLE} to an address of this machine that the executors can reach.",
            )
    raise ReservationError(
        f"the reservation server found no free port: {'; '.join(taken[:10])}{'; ...' if len(taken) > 10 else ''}",
        f"Set {PORT_VARIABLE} to a free port or a range such as 9000-9010, or unset it and any free port is taken.",
    )


def _why_taken(port: int, exc: OSError) -> str:
    if exc.errno == errno.EACCES:
        return f"port {port} is not allowed for this user"
    holder = port_holder(port)
    return f"port {port} is held by {holder}" if holder else f"port {port} is in use by a process that is not visible from here"


def _bind_candidates(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "localhost":
        return [(socket.AF_INET, _LOOPBACK), (socket.AF_INET6, "::1")]
    resolved = _resolve(host)
    everywhere = (socket.AF_INET, "0.0.0.0")  # noqa: S104 - peers prove themselves before they are heard
    if not resolved:
        return [everywhere]
    family, address = resolved[0]
    if ipaddress.ip_address(address).is_loopback:
        # Debian resolves a host's own name to 127.0.1.1, which others do not: the name is then good for them, and must be served.
        return [(family, address)] if address == host else [everywhere]
    return [(family, address), everywhere if family is socket.AF_INET else (socket.AF_INET6, "::")]


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Numeric addresses, IPv4 first, since that is what most peers try first."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    pairs = [(family, str(address[0]).partition("%")[0]) for family, _, _, _, address in found]
    return sorted(pairs, key=lambda pair: pair[0] is not socket.AF_INET)


def _can_bind(family: socket.AddressFamily, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _listening_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
