"""Socket settings that both ends of a control channel share."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import time

__all__ = ("HEARTBEAT_S", "RECEIVE_BYTES", "close_quietly", "seconds_left", "tune", "wait_ready")

RECEIVE_BYTES = 256 * 1024

# The heartbeat is the kernel's, so it needs no thread that may be starved: it asks an idle peer every second, and gives a peer up
# that acknowledges nothing for USER_TIMEOUT, whether or not something is under way (without it the kernel goes on repeating for
# some 15 minutes). Names differ between systems; without USER_TIMEOUT it is KEEPIDLE + KEEPINTVL * KEEPCNT for an idle peer.
# The price, seen on Linux 6: a living peer that reads nothing for USER_TIMEOUT while the socket buffers are full (about 4 MB on
# loopback) is given up as well. So both ends read promptly, and what they call for a message must not block. Seconds must be
# enough for a loaded machine, and for a driver whose interpreter is kept by a native call.
HEARTBEAT_S = 10
_KEEPALIVE = (
    ("TCP_KEEPIDLE", 2),
    ("TCP_KEEPALIVE", 2),
    ("TCP_KEEPINTVL", 1),
    ("TCP_KEEPCNT", HEARTBEAT_S - 2),
    ("TCP_USER_TIMEOUT", HEARTBEAT_S * 1000),
)


def tune(sock: socket.socket) -> None:
    """Make a connected socket non-blocking, send small messages at once, and find dead peers within `HEARTBEAT_S` seconds."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def close_quietly(sock: socket.socket) -> None:
    """Close a socket that may be broken already; a thread that waits for it wakes up."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        sock.close()


def seconds_left(deadline: float | None) -> float | None:
    """Seconds until a `time.monotonic()` deadline, never negative; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def wait_ready(sock: socket.socket | int, *, deadline: float | None, write: bool = False) -> bool:
    """Wait until a socket (or another descriptor) can be read, or written; False when the deadline came first.

    `poll` and not `select`, which fails for file descriptors above 1023.
    """
    poll = select.poll()
    poll.register(sock, select.POLLOUT if write else select.POLLIN)
    left = seconds_left(deadline)
    return bool(poll.poll(None if left is None else math.ceil(left * 1000)))
