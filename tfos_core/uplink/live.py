"""The live connection from a driver on the cluster to the machine that submitted it, with the protocol of the control channel.

It is a help and never a need: what it can not bring is in the record too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from tfos_core.errors import ChannelClosedError, ReservationError
from tfos_core.reservation import Client, Right
from tfos_core.uplink.journal import NumberedLine

__all__ = ("HERE", "LINE", "SHUTDOWN", "LiveLine")

logger = logging.getLogger(__name__)

#: What the driver says first, each line of it, and what it may hear.
HERE, LINE, SHUTDOWN = "driver.here", "driver.line", "driver.shutdown"

_CONNECT_S = 10.0
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 60.0
_GONE_S = 0.5
#: What waits for a connection that is slow or not there; older lines are let go, since the record has them.
MOST_WAITING_BYTES = 16 << 20


class LiveLine:
    """Connects in a thread of its own, again when the connection breaks, and sends what it is offered.

    Args:
        on_shutdown: gets the reason when the other side asks for the end of the job; from a thread of the line.
    """

    def __init__(self, host: str, port: int, secret: bytes, *, on_shutdown: Callable[[str], None]) -> None:
        self._address = (host, port)
        self._secret = secret
        self._on_shutdown = on_shutdown
        self._waiting: deque[NumberedLine] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._connected = False
        self._broken = False
        self._given_up = False
        self._ending = False
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="tfos-live", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether the other side hears now."""
        return self._connected

    def offer(self, number: int, line: str) -> None:
        """Queue a line; never waits."""
        with self._changed:
            if self._given_up:
                return
            self._waiting.append((number, line))
            self._bytes += len(line)
            while self._bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
                self._bytes -= len(self._waiting.popleft()[1])
            self._changed.notify_all()

    def close(self, *, timeout: float = 5.0) -> None:
        """Send what waits, if there is a connection, for at most `timeout` seconds; may be called twice."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or not self._connected, timeout)
            self._ending = True
            self._changed.notify_all()
        # One that is about to connect has nothing to finish, and is a daemon.
        self._thread.join(timeout if self._connected else _GONE_S)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._ending:
            begun = time.monotonic()
            try:
                with Client(self._address, secret=self._secret, right=Right.REGISTER, timeout=_CONNECT_S) as client:
                    pause = _FIRST_PAUSE_S
                    self._serve(client)
            except ChannelClosedError as exc:
                logger.info("no live connection to %s:%d: %s", *self._address, exc)
            except ReservationError as exc:
                # Somebody else answers there: what was told once will not become right.
                logger.warning("no live connection to %s:%d: %s", *self._address, exc)
                self._give_up()
                return
            with self._changed:
                self._connected = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ending, max(0.0, pause - (time.monotonic() - begun)))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _serve(self, client: Client) -> None:
        """Until the connection breaks, or all is said."""
        client.send({"op": HERE})
        with self._changed:
            self._connected, self._broken = True, False
            self._changed.notify_all()
        listener = threading.Thread(target=self._listen, args=(client,), name="tfos-live-read", daemon=True)
        listener.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending or self._broken)
                if self._broken or (self._ending and not self._waiting):
                    return
                number, line = self._waiting[0]
            client.send({"op": LINE, "n": number, "line": line})
            with self._changed:
                if self._waiting and self._waiting[0][0] == number:
                    self._bytes -= len(self._waiting.popleft()[1])
                self._changed.notify_all()

    def _listen(self, client: Client) -> None:
        try:
            while True:
                message = client.receive()
                if message["op"] == SHUTDOWN:
                    self._on_shutdown(str(message.get("reason", "")))
        except ReservationError:
            with self._changed:
                self._broken = True
                self._connected = False
                self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._given_up = True
            self._connected = False
            self._waiting.clear()
            self._changed.notify_all()
