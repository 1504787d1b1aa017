"""The secrets of servers in this process, by address, so that a client in the same process needs no secret handed over."""

from __future__ import annotations

import threading

__all__ = ("find", "forget", "remember")

_lock = threading.Lock()
_secrets: dict[tuple[str, int], bytes] = {}


def remember(address: tuple[str, int], secret: bytes) -> None:
    """Keep the secret of a server that has started."""
    with _lock:
        _secrets[address] = secret


def forget(address: tuple[str, int]) -> None:
    """Drop the secret of a server that has stopped."""
    with _lock:
        _secrets.pop(address, None)


def find(address: tuple[str, int]) -> bytes | None:
    """The secret of the server at this address, or None when it is not one of this process."""
    with _lock:
        return _secrets.get(address)
