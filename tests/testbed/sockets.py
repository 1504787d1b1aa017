"""Sockets that listen, as the kernel's tables and /proc show them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Listener", "list_listeners", "parse_tcp_table", "parse_unix_table")

TCP_LISTEN = "0A"
ACCEPTS_CONNECTIONS = 0x10000  # __SO_ACCEPTCON in the flags of /proc/net/unix


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket: `where` is `tcp PORT` or `unix PATH`; `pid` holds it."""

    where: str
    inode: int
    pid: int

    def __str__(self) -> str:
        return f"{self.where} held by {self.pid}"


def parse_tcp_table(text: str) -> dict[int, str]:
    """Inode -> `tcp PORT` of every listening line of /proc/net/tcp or tcp6."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == TCP_LISTEN:
            found[int(fields[9])] = f"tcp {int(fields[1].rpartition(':')[2], 16)}"
    return found


def parse_unix_table(text: str) -> dict[int, str]:
    """Inode -> `unix PATH` of every listening line of /proc/net/unix."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) >= 7 and int(fields[3], 16) & ACCEPTS_CONNECTIONS:
            found[int(fields[6])] = f"unix {fields[7] if len(fields) == 8 else '(unnamed)'}"
    return found


def list_listeners(pids: Iterable[int]) -> tuple[Listener, ...]:
    """The listening sockets that these processes hold."""
    table: dict[int, str] = {}
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        table |= parse_tcp_table(path.read_text()) if path.exists() else {}
    table |= parse_unix_table(Path("/proc/net/unix").read_text(errors="replace"))
    return tuple(
        Listener(where=table[inode], inode=inode, pid=pid) for pid in pids for inode in _socket_inodes(pid) if inode in table
    )


def _socket_inodes(pid: int) -> set[int]:
    inodes: set[int] = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    return inodes
