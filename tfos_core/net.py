"""The port of a node, held from before it is announced until the node ends."""

from __future__ import annotations

import socket

__all__ = ("hold_port",)


def hold_port(port: int = 0) -> socket.socket:
    """A TCP socket bound to a port of every interface (0: a free one), not listening, with SO_REUSEPORT.

    As long as it is open the kernel gives the port to nobody else, while a server of the same user that sets SO_REUSEPORT
    (TensorFlow's does with TF_GRPC_REUSE_PORT=1) can bind and listen on it. A bound socket that does not listen gets no
    connections.

    Raises:
        OSError: the port is taken by somebody who does not share it.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens here; TensorFlow's own server binds every interface too
    except BaseException:
        holder.close()
        raise
    return holder
