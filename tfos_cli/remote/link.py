"""This machine's end of a run in cluster deploy mode: listens for the driver, reads the record, and puts both together."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from tfos_cli.remote.local_copy import LocalCopy
from tfos_cli.remote.sequencer import Sequencer
from tfos_core.errors import ProtocolError, ReservationError
from tfos_core.json_text import parse_json
from tfos_core.reservation.address import HOST_VARIABLE, PORT_VARIABLE, default_host, listen, parse_ports
from tfos_core.reservation.connection import Connection
from tfos_core.reservation.handshake import Right, new_secret
from tfos_core.reservation.loop import Limits, ServerLoop
from tfos_core.reservation.messages import Message, encode_message
from tfos_core.shim.status import STATUS_FILE
from tfos_core.uplink.folder import RecordFolder
from tfos_core.uplink.journal import CANCEL_FILE, JournalReader
from tfos_core.uplink.live import HERE, LINE, SHUTDOWN

__all__ = ("Link", "address_towards")

#: Between two looks at the record: soon after news, seldom when there are none or the live connection brings them.
FIRST_PAUSE_S, LONGEST_PAUSE_S, LIVE_PAUSE_S = 1.0, 10.0, 60.0
_GROWTH = 1.5
_JOIN_S = 10.0


class Link:
    """From `__enter__` to `__exit__`; the callbacks come from threads of the link.

    Args:
        folder: the record on the file system that the driver reaches too.
        copy: the record here; written by the link alone while it is open.
        position: the number of the first line that is wanted.
        towards: a host of the cluster; the address of this machine that it sees is told to the driver.
        environ: for `TFOS_SERVER_HOST` and `TFOS_SERVER_PORT`, which in cluster deploy mode are this machine's.
        on_connected: the driver was heard for the first time, either way.
        on_line: a line that a view can show, in order, already in the record here.
        on_say: a sentence for the user.
    """

    def __init__(
        self,
        folder: RecordFolder,
        copy: LocalCopy,
        *,
        position: int = 1,
        towards: str = "",
        environ: Mapping[str, str],
        on_connected: Callable[[], None],
        on_line: Callable[[str], None],
        on_say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._copy = copy
        self._reader = JournalReader(folder, position=position)
        self._sequencer = Sequencer(position)
        self._towards = towards
        self._environ = environ
        self._on_connected = on_connected
        self._on_line = on_line
        self._on_say = on_say
        self.secret = new_secret()
        self._changed = threading.Condition()
        # Orders what comes from the two threads.
        self._writing = threading.Lock()
        self._heard = False
        self._live: Connection | None = None
        self._stop_reason = ""
        self._cancel_wanted = False
        self._look_wanted = False
        self._gap = False
        self._closing = False
        self._told_of_trouble = False
        self._rounds = 0
        self._loop: ServerLoop | None = None
        self._address: tuple[str, int] = ("", 0)
        self._thread = threading.Thread(target=self._poll, name="tfos-record-reader", daemon=True)

    def __enter__(self) -> Self:
        self._listen()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._loop is not None:
            self._loop.stop()
        self._thread.join(_JOIN_S)

    @property
    def address(self) -> tuple[str, int]:
        """Where the driver can find this machine; port 0 when it does not listen."""
        return self._address

    @property
    def is_finished(self) -> bool:
        """Whether the driver has said how the run ended."""
        return self._copy.is_finished

    def shut_down(self, reason: str) -> bool:
        """Ask the driver to end the job, over the connection and in the record; True, because it will find one of them."""
        with self._changed:
            self._stop_reason, self._cancel_wanted = reason, True
            self._changed.notify_all()
        self._tell_live()
        return True

    def look_now(self, *, timeout: float) -> None:
        """Read the record to its present end, for at most `timeout` seconds."""
        until = time.monotonic() + timeout
        with self._changed:
            # Twice, because the round that is under way may have begun before.
            for _ in range(2):
                before = self._rounds
                self._look_wanted = True
                self._changed.notify_all()
                while self._rounds == before and not self._closing and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)

    # -- the live connection: loop.Handler, in the loop's thread ----------------------------------------------------------

    def received(self, connection: Connection, message: Message) -> None:
        """The driver said something."""
        if connection.channel.right is not Right.REGISTER:
            raise ProtocolError("it has not the right of a driver")
        match message["op"]:
            case op if op == HERE:
                connection.node = "driver"  # what is queued for it is delivered at the end
                self._live = connection
                self._tell_live()
            case op if op == LINE:
                number, line = message.get("n"), message.get("line")
                if not isinstance(number, int) or not isinstance(line, str):
                    raise ProtocolError("it sent a line without a number or a text")
                with self._writing:
                    self._give(self._sequencer.from_live(number, line))
                    gap = self._sequencer.has_gap
                if gap and not self._gap:
                    with self._changed:
                        self._gap = self._look_wanted = True
                        self._changed.notify_all()
            case op:
                raise ProtocolError(f"it sent {op!r:.40}, which is not for a driver to send")

    def dropped(self, connection: Connection) -> None:
        """The connection is gone; the record goes on."""
        if self._live is connection:
            self._live = None
            with self._changed:
                self._look_wanted = True
                self._changed.notify_all()

    def crashed(self, error: Exception) -> None:
        """The record brings the same."""
        self._live = None
        self._on_say(f"the live connection failed, the record is read instead: {error!r}")

    def _listen(self) -> None:
        try:
            ports = parse_ports(self._environ.get(PORT_VARIABLE, ""))
            host = (self._environ.get(HOST_VARIABLE) or address_towards(self._towards) or default_host()).strip().strip("[]")
            listener = listen(host, ports)
        except ReservationError as exc:
            self._on_say(f"there will be no live connection, the record is read instead: {exc}")
            return
        self._address = (host, listener.getsockname()[1])
        self._loop = ServerLoop(listener, self.secret, self, Limits(strangers=32))
        self._loop.start()

    def _tell_live(self) -> None:
        connection, loop = self._live, self._loop
        if connection is not None and loop is not None and self._stop_reason:
            connection.push(encode_message({"op": SHUTDOWN, "reason": self._stop_reason}))
            loop.touch(connection)

    def _give(self, lines: list[str]) -> None:
        """In order: the caller holds `_writing`."""
        if not lines:
            return
        shown = self._copy.take(lines, self._sequencer.position)
        if not self._heard:
            self._heard = True
            self._on_connected()
        for line in shown:
            self._on_line(line)

    # -- the record -------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            with self._changed:
                wait = FIRST_PAUSE_S if self._gap else LIVE_PAUSE_S if self._live is not None else pause
                self._changed.wait_for(lambda: self._closing or self._look_wanted or self._cancel_wanted, wait)
                if self._closing:
                    return
                self._look_wanted = False
            pause = FIRST_PAUSE_S if self._round() else min(LONGEST_PAUSE_S, pause * _GROWTH)
            with self._changed:
                self._rounds += 1
                self._changed.notify_all()

    def _round(self) -> bool:
        """Leave a request to end, if there is one to leave, and read; whether there was news."""
        try:
            if self._cancel_wanted:
                self._folder.put(CANCEL_FILE, json.dumps({"reason": self._stop_reason}).encode())
                self._cancel_wanted = False
            lines = self._reader.read()
            with self._writing:
                self._give(self._sequencer.from_record(lines))
                self._gap = self._sequencer.has_gap
            self._told_of_trouble = False
        except OSError as exc:
            if not self._told_of_trouble:
                self._on_say(f"the record of the run can not be read, and is tried again: {exc}")
            self._told_of_trouble = True
            return False
        return bool(lines)

    def adopt_status(self) -> None:
        """Take the status file of the record, for a driver whose last lines did not arrive."""
        with contextlib.suppress(OSError, ValueError):
            data = self._folder.get(STATUS_FILE)
            if data is not None:
                with self._writing:
                    self._copy.adopt(parse_json(data))


def address_towards(host: str) -> str:
    """The address of this machine that a host sees, from this machine's own routes; empty when there is no route. Sends nothing."""
    if not host:
        return ""
    with contextlib.suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # a datagram socket only looks the route up
                return str(probe.getsockname()[0])
    return ""
