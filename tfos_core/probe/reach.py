"""Whether one process reaches another over TCP, and how far apart their clocks are.

The one that listens answers with what it was sent and its time of day, so that somebody else on that port is not taken for it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

__all__ = ("Listener", "Reached", "reach", "reach_all")

_NONCE = 16
_ANSWER = struct.Struct(f">{_NONCE}sd")
#: A host that does not answer at all costs this, in seconds; those that refuse answer at once.
TIMEOUT_S = 5.0
_AT_ONCE = 16
#: As many may be connected to a listener at a time; whoever comes then takes the place of the one that has waited longest.
_MOST_VISITORS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How an attempt went: no `error` when the other side answered; `skew_s` is its clock minus ours, give or take `within_s`."""

    error: str = ""
    skew_s: float = 0.0
    within_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"error": self.error, "skew_s": round(self.skew_s, 3), "within_s": round(self.within_s, 3)}


class Listener:
    """Answers whoever connects, in a thread of its own, until it is closed; a context manager.

    Anybody can connect, so nobody is waited for: one thread serves all, and a visitor that says nothing is sent away in time.

    Args:
        listening: a socket that listens already; by default one on any free port of every interface.
    """

    def __init__(self, listening: socket.socket | None = None) -> None:
        self._socket = listening or _everywhere()
        self._socket.setblocking(False)
        self._wake_in, self._wake_out = socket.socketpair()
        #: What each visitor has said, and when it came; in that order.
        self._visitors: dict[socket.socket, tuple[bytes, float]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, name="tfos-probe", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    def close(self) -> None:
        """Stop answering; may be called twice."""
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")
        self._thread.join(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select(self._time_left()):
                    if key.fileobj is self._wake_in:
                        return
                    if key.fileobj is self._socket:
                        self._accept()
                    elif key.fileobj in self._visitors:
                        self._hear(key.fileobj)
                self._send_away_late_ones()
        finally:
            for visitor in list(self._visitors):
                self._send_away(visitor)
            self._selector.close()
            for sock in (self._socket, self._wake_in, self._wake_out):
                sock.close()

    def _time_left(self) -> float | None:
        came = next((came for _, came in self._visitors.values()), None)
        return None if came is None else max(0.0, came + TIMEOUT_S - time.monotonic())

    def _accept(self) -> None:
        try:
            visitor, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of file descriptors: those that wait longest give theirs back.
            self._send_away_first()
            return
        visitor.setblocking(False)
        if len(self._visitors) >= _MOST_VISITORS:
            self._send_away_first()
        self._visitors[visitor] = b"", time.monotonic()
        self._selector.register(visitor, selectors.EVENT_READ)

    def _hear(self, visitor: socket.socket) -> None:
        said, came = self._visitors[visitor]
        try:
            more = visitor.recv(_NONCE - len(said))
            said += more
            if more and len(said) < _NONCE:
                self._visitors[visitor] = said, came
                return
            if len(said) == _NONCE:
                visitor.send(_ANSWER.pack(said, time.time()))
        except BlockingIOError:
            return
        except OSError:
            pass  # it is gone
        self._send_away(visitor)

    def _send_away(self, visitor: socket.socket) -> None:
        del self._visitors[visitor]
        self._selector.unregister(visitor)
        visitor.close()

    def _send_away_first(self) -> None:
        first = next(iter(self._visitors), None)
        if first is not None:
            self._send_away(first)

    def _send_away_late_ones(self) -> None:
        now = time.monotonic()
        for visitor in [visitor for visitor, (_, came) in self._visitors.items() if now - came >= TIMEOUT_S]:
            self._send_away(visitor)


def reach(host: str, port: int, *, timeout: float = TIMEOUT_S) -> Reached:
    """Try to reach a `Listener`."""
    nonce = os.urandom(_NONCE)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            sent = time.time()
            connection.sendall(nonce)
            answer = _receive(connection, _ANSWER.size)
            received = time.time()
    except TimeoutError:
        return Reached(error=f"no answer within {timeout:g} s")
    except (OSError, UnicodeError) as exc:
        return Reached(error=getattr(exc, "strerror", None) or str(exc))
    echoed, theirs = _ANSWER.unpack(answer) if len(answer) == _ANSWER.size else (b"", 0.0)
    if echoed != nonce:
        return Reached(error="something else answers there")
    return Reached(skew_s=theirs - (sent + received) / 2, within_s=(received - sent) / 2)


def reach_all(targets: Mapping[str, tuple[str, int]], *, timeout: float = TIMEOUT_S) -> dict[str, Reached]:
    """Try to reach many at once: name -> how it went."""
    if not targets:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(targets))) as pool:
        answers: Iterable[Reached] = pool.map(lambda place: reach(*place, timeout=timeout), targets.values())
        return dict(zip(targets, answers, strict=True))


def _everywhere() -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As TensorFlow's own servers do; nothing is served but the echo.
        listening.bind(("0.0.0.0", 0))  # noqa: S104
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            break
        data += more
    return data
