"""The client's way in: connect and prove each other, again and again until a deadline."""

from __future__ import annotations

import random
import socket
import time

from tfos_core.errors import AuthenticationError, ChannelClosedError, ProtocolError
from tfos_core.reservation.channel import Channel
from tfos_core.reservation.handshake import ClientHandshake, Right
from tfos_core.reservation.messages import Message
from tfos_core.reservation.tcp import RECEIVE_BYTES, close_quietly, tune, wait_ready

__all__ = ("open_channel",)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


def open_channel(
    address: tuple[str, int], secret: bytes, right: Right, timeout: float, gone: int | None = None
) -> tuple[socket.socket, Channel, list[Message]]:
    """A connected, authenticated channel, and the messages that came right behind the handshake.

    A server that is not there yet, or has no room for another stranger, is tried again with growing pauses; a wrong secret or
    another version is final. `gone` is a file descriptor that is readable once nobody wants the connection any more.

    Raises:
        ChannelClosedError: there was no connection within `timeout` seconds, or `gone` became readable.
        AuthenticationError: one of the two does not know the secret of the other.
        ProtocolError: what answers is no server of this version.
    """
    where = f"{address[0]}:{address[1]}"
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return _try_once(address, secret, right, deadline)
        except (OSError, ChannelClosedError) as exc:
            # Many nodes start in the same moment: without jitter they would also come back in the same moment.
            wait = pause * random.SystemRandom().uniform(0.5, 1.0)
            if time.monotonic() + wait >= deadline:
                raise ChannelClosedError(
                    f"no connection to the reservation server at {where} within {timeout:g} s: {exc}",
                    "Check that the driver is alive, and that this host can reach that address and port; "
                    "TFOS_SERVER_HOST and TFOS_SERVER_PORT on the driver change them.",
                ) from exc
            if gone is None:
                time.sleep(wait)
            elif wait_ready(gone, deadline=time.monotonic() + wait):
                raise ChannelClosedError(f"nobody waits for a connection to the reservation server at {where} any more") from exc
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        except UnicodeError as exc:
            raise ChannelClosedError(f"{address[0]!r} is no name of a host", "Give a host name or an address.") from exc
        except AuthenticationError as exc:
            raise AuthenticationError(f"the reservation server at {where} was not accepted: {exc}", exc.hint) from exc
        except ProtocolError as exc:
            raise ProtocolError(f"what answers at {where} is no reservation server for us: {exc}", exc.hint) from exc


def _try_once(
    address: tuple[str, int], secret: bytes, right: Right, deadline: float
) -> tuple[socket.socket, Channel, list[Message]]:
    # A zero timeout would mean a non-blocking connect.
    sock = socket.create_connection(address, timeout=max(0.05, deadline - time.monotonic()))
    try:
        tune(sock)
        channel = Channel(ClientHandshake(secret, right))
        messages: list[Message] = []
        _send_small(sock, channel.take_reply())
        while not channel.authenticated:
            if not wait_ready(sock, deadline=deadline):
                raise ChannelClosedError("it accepted the connection but said nothing")
            data = sock.recv(RECEIVE_BYTES)
            if not data:
                raise ChannelClosedError("it closed the connection during the handshake")
            messages += channel.receive(data)
            _send_small(sock, channel.take_reply())
    except BaseException:
        close_quietly(sock)
        raise
    return sock, channel, messages


def _send_small(sock: socket.socket, data: bytes) -> None:
    # A handshake message is far smaller than any send buffer, and nothing else was sent before it.
    if data:
        sock.sendall(data)
