"""Which process holds a TCP port: Linux only, as far as /proc shows it to this user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ("port_holder",)

_LISTEN = "0A"


def port_holder(port: int, *, proc: Path = Path("/proc")) -> str | None:
    """`process 4711 (java)`, or None when the holder can not be seen."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not inodes:
        return None
    for process in proc.iterdir():
        if process.name.isdigit() and _has_open(process, inodes):
            return f"process {process.name} ({_name(process)})"
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if len(columns) > 9 and columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _has_open(process: Path, links: set[str]) -> bool:
    try:
        return any(_target(descriptor) in links for descriptor in (process / "fd").iterdir())
    except OSError:  # it has ended, or belongs to somebody else
        return False


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "name unknown"
