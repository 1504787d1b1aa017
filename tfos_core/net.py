"""Addresses and ports of this host; never asks the network to learn them."""

from __future__ import annotations

import os
import socket

__all__ = ("hold_port", "local_address_of")


def hold_port() -> socket.socket:
    """A TCP socket bound to a free port of every interface, not listening, with SO_REUSEPORT.

    As long as it is open the kernel gives the port to nobody else, while a server of the same user that sets SO_REUSEPORT
    (TensorFlow's does with TF_GRPC_REUSE_PORT=1) can bind and listen on it. A bound socket that does not listen gets no
    connections.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("0.0.0.0", 0))  # noqa: S104 - nothing listens here; TensorFlow's own server binds every interface too
    except BaseException:
        holder.close()
        raise
    return holder


def local_address_of(fd: int) -> str:
    """The address of this host that the connection behind `fd` uses: what the driver can reach, peers can reach."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        address = connection.getsockname()[0]
    return str(address)
