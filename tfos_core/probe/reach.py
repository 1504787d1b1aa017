"""Whether one process reaches another over TCP, and how far apart their clocks are.

The one that listens answers with what it was sent and its time of day, so that somebody else on that port is not taken for it.
"""

from __future__ import annotations

import contextlib
import os
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

    Args:
        listening: a socket that listens already; by default one on any free port of every interface.
    """

    def __init__(self, listening: socket.socket | None = None) -> None:
        self._socket = listening or _everywhere()
        self._socket.setblocking(True)
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="tfos-probe", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop answering; may be called twice."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _serve(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tfos-probe") as pool:
            while not self._closed:
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                pool.submit(_answer, connection)


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


def _answer(connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(TIMEOUT_S)
        nonce = _receive(connection, _NONCE)
        if len(nonce) == _NONCE:
            connection.sendall(_ANSWER.pack(nonce, time.time()))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            break
        data += more
    return data
