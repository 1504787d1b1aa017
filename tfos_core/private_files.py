"""Files and sockets for this user only, made so from their first moment."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

__all__ = ("bind_private", "write_private")

_MODE = 0o600


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600 in place of what is there, whole or not at all; never through a link that somebody left.

    Raises:
        OSError: it can not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    # What a killed process of the same number left.
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def bind_private(listener: socket.socket, path: Path) -> None:
    """Bind a Unix socket with mode 0600.

    Raises:
        OSError: it can not be bound there.
    """
    # On Linux the mode of the socket becomes the mode of its file, so that there is no moment with another one.
    with contextlib.suppress(OSError):
        os.fchmod(listener.fileno(), _MODE)
    listener.bind(str(path))
    path.chmod(_MODE)
