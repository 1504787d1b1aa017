"""The command line's end of the private channel to the driver shim; `tfos_core.shim.channel` is the other end.

A Unix socket in a folder that only its owner can enter. A peer has to present the token from a file that only the owner can read;
whoever does not is sent away and the run goes on. One shim is served; a second one with the right token is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tfos_core.errors import EnvironmentCheckError
from tfos_core.json_text import parse_json
from tfos_core.private_files import bind_private, write_private
from tfos_core.shim.channel import MAX_LINE_BYTES, ChannelDescriptor

__all__ = ("ChannelServer", "private_folder")

#: How long a peer may take to present its token.
_HELLO_TIMEOUT_S = 5.0
_MAX_HELLO_BYTES = 4096
_BIND_ATTEMPTS = 5
#: sun_path of sockaddr_un, less its terminating zero.
_MAX_SOCKET_PATH = 107


class ChannelServer:
    """Listens from `__enter__` to `__exit__`. The callbacks come from threads of the server.

    Args:
        descriptor_path: the file that tells the shim where to connect; made 0600 and removed at the end.
        on_connected: the shim presented the token.
        on_line: a line of JSON from the shim, without the line end.
        on_closed: the shim is gone; called once, only after `on_connected`.
        on_stranger: somebody without the token was sent away; gets the reason.
    """

    def __init__(
        self,
        descriptor_path: Path,
        *,
        on_connected: Callable[[], None],
        on_line: Callable[[str], None],
        on_closed: Callable[[], None],
        on_stranger: Callable[[str], None],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._descriptor_path = descriptor_path
        self._on_connected = on_connected
        self._on_line = on_line
        self._on_closed = on_closed
        self._on_stranger = on_stranger
        self._environ = os.environ if environ is None else environ
        self._token = os.urandom(32).hex()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._path: Path | None = None
        self._peer: socket.socket | None = None
        self._visitors: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Self:
        self._listener, self._path = _listen(self._environ)
        descriptor = ChannelDescriptor(socket=str(self._path), token=self._token)
        write_private(self._descriptor_path, descriptor.to_json())
        self._spawn(self._accept, self._listener)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._closing = True
            open_sockets = [s for s in (self._listener, self._peer, *self._visitors) if s is not None]
        for each in open_sockets:
            # wakes the thread that waits on it; closing alone would not
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_HELLO_TIMEOUT_S + 1)
        for each in open_sockets:
            each.close()
        self._descriptor_path.unlink(missing_ok=True)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others still have their sockets there
                self._path.parent.rmdir()

    def shut_down(self, reason: str) -> bool:
        """Ask the shim to end the job; False when no shim is there to hear it."""
        with self._lock:
            peer = self._peer
        if peer is None:
            return False
        try:
            peer.sendall(json.dumps({"op": "shutdown", "reason": reason}).encode() + b"\n")
        except OSError:
            return False
        return True

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closing:
                    visitor.close()
                    return
                self._visitors.add(visitor)
            self._spawn(self._serve, visitor)

    def _serve(self, visitor: socket.socket) -> None:
        refusal = self._admit(visitor)
        with self._lock:
            self._visitors.discard(visitor)
            if not refusal and self._peer is None and not self._closing:
                self._peer = visitor
            else:
                refusal = refusal or "there is a driver already"
        if refusal:
            visitor.close()
            self._on_stranger(refusal)
            return
        self._on_connected()
        with visitor.makefile("rb") as lines:
            while line := _read_line(lines):
                self._on_line(line.decode(errors="replace").rstrip("\n"))
        self._on_closed()

    def _admit(self, visitor: socket.socket) -> str:
        """Why a visitor must go; empty when it is the shim."""
        import hmac  # OpenSSL behind it takes its time, and the first visitor comes when the JVM has started

        try:
            other = _peer_uid(visitor)
            if other not in (None, os.getuid()):
                return f"user {other} connected to the channel of this run"
            visitor.settimeout(_HELLO_TIMEOUT_S)
            line = _read_hello(visitor)
            visitor.settimeout(None)
            message = parse_json(line)
        except OSError as exc:
            return f"a process connected and did not say who it is: {exc}"
        except ValueError:
            return "a process connected and sent something that is not JSON"
        token = message.get("token") if isinstance(message, dict) else None
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            return "a process connected with a wrong token"
        return ""

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="tfos-channel", daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()] + [thread]
        thread.start()


def private_folder(environ: Mapping[str, str]) -> Path:
    """`${TMPDIR:-/tmp}/tfos-<uid>`, which only its owner can enter; /tmp when the other is too long for a socket.

    Raises:
        EnvironmentCheckError: something else is there, or it belongs to somebody else.
    """
    base = Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108 - the folder below is private and checked
    if len(str(base)) > _MAX_SOCKET_PATH - 40:
        base = Path("/tmp")  # noqa: S108
    folder = base / f"tfos-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise EnvironmentCheckError(
            f"{folder} is not a folder that only you (user {os.getuid()}) can enter",
            f"Remove it, or set TMPDIR to a folder of your own: 'ls -ld {folder}'.",
        )
    return folder


def _listen(environ: Mapping[str, str]) -> tuple[socket.socket, Path]:
    """A listening socket in the private folder, which another run may remove between its making and the binding."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for attempt in range(_BIND_ATTEMPTS):
        path = private_folder(environ) / f"c-{os.urandom(6).hex()}.sock"
        try:
            bind_private(listener, path)
            listener.listen(8)
        except FileNotFoundError:
            if attempt == _BIND_ATTEMPTS - 1:
                listener.close()
                raise
        else:
            return listener, path
    raise AssertionError("unreachable")


def _peer_uid(connection: socket.socket) -> int | None:
    """User of the process at the other end; None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    size = struct.calcsize("3i")
    uid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))[1]
    return uid


def _read_hello(visitor: socket.socket) -> bytes:
    """The first line, byte by byte so that nothing behind it is swallowed, and no longer than a token needs."""
    line = b""
    while len(line) < _MAX_HELLO_BYTES and not line.endswith(b"\n"):
        byte = visitor.recv(1)
        if not byte:
            raise ConnectionResetError("it hung up")
        line += byte
    return line


def _read_line(lines: Any) -> bytes:
    try:
        line: bytes = lines.readline(MAX_LINE_BYTES)
    except OSError:
        return b""
    return line
