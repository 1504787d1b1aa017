"""Writes a run's folder: events, status and the output of nodes. Safe to call from any thread."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import RunStatus, read_status, write_status
from tfos_core.tensorboard.folder import EventFileFolder

if TYPE_CHECKING:
    from tfos_core import events

__all__ = ("EVENTS_FILE", "NODES_FOLDER", "TENSORBOARD_FOLDER", "NodeLogs", "RecordWriter", "node_log_name")

EVENTS_FILE = "events.jsonl"
NODES_FOLDER = "nodes"
TENSORBOARD_FOLDER = "tensorboard"

#: A node's log is renamed to `<name>.1` at this size, over the one before: a node never fills the disk of the submitting machine.
NODE_LOG_LIMIT_BYTES = 64 * 1024 * 1024

_NODE_NAME = re.compile(r"[a-z]+:[0-9]+")


def node_log_name(node: str) -> str:
    """`worker-0.log` for `worker:0`.

    Raises:
        ValueError: not the name of a node, so it must not become a file's name.
    """
    if not _NODE_NAME.fullmatch(node):
        raise ValueError(f"{node!r} is not the name of a node, as in worker:0")
    return node.replace(":", "-") + ".log"


class NodeLogs:
    """One file per node, opened at its first line and bounded in size."""

    def __init__(self, folder: Path, *, limit_bytes: int = NODE_LOG_LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._files: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def write(self, node: str, lines: Sequence[str]) -> None:
        """Append lines that a node printed; the caller serialises."""
        name = node_log_name(node)
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        if name in self._files and self._sizes[name] + len(data) > self._limit:
            os.close(self._files.pop(name))
            (self._folder / name).replace(self._folder / f"{name}.1")
        if name not in self._files:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._files[name] = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._sizes[name] = os.fstat(self._files[name]).st_size
        os.write(self._files[name], data)
        self._sizes[name] += len(data)

    def close(self) -> None:
        """Close all files; may be called twice."""
        while self._files:
            os.close(self._files.popitem()[1])


class RecordWriter:
    """The writing end of a run's folder, for one process at a time.

    Args:
        folder: exists, and holds a status record.
        redactor: applied to everything that is written.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor
        self._lock = threading.Lock()
        self._status = read_status(folder)
        self._events = os.open(folder / EVENTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._logs = NodeLogs(folder / NODES_FOLDER)
        self._event_files = EventFileFolder(folder / TENSORBOARD_FOLDER)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def status(self) -> RunStatus:
        """The record as last written."""
        return self._status

    def event(self, event: events.Event) -> str:
        """Append an event and return its line, without secrets."""
        from tfos_core import events  # the command line writes its first event without the declarations of all others

        return self.line_of(events.to_line(event))

    def line_of(self, line: str) -> str:
        """Append the line of an event of this process, and return it without secrets."""
        clean = json.dumps(self._redactor.value(json.loads(line)), separators=(",", ":"))
        with self._lock:
            if not self._closed:
                # one write per line: a reader may see half a line only while the disk is full
                os.write(self._events, clean.encode() + b"\n")
        return clean

    def line(self, line: str) -> None:
        """Append the line of an event that was made, and freed of secrets, elsewhere."""
        with self._lock:
            if not self._closed:
                os.write(self._events, line.encode("utf-8", "backslashreplace") + b"\n")

    def update(self, **changes: Any) -> None:
        """Replace fields of the status record, unless it says that the run has ended."""
        clean = {name: self._redactor.value(value) for name, value in changes.items() if name not in _OBJECTS}
        with self._lock:
            if not self._status.is_finished:
                self._status = replace(self._status, **clean | {name: changes[name] for name in _OBJECTS & changes.keys()})
                write_status(self._folder, self._status)

    def output(self, node: str, lines: Sequence[str]) -> list[str]:
        """Append lines that a node printed to its log, and return them without secrets."""
        clean = [self._redactor.text(line) for line in lines]
        with self._lock:
            if not self._closed:
                self._logs.write(node, clean)
        return clean

    def event_file(self, node: str, path: str, offset: int, data: bytes) -> None:
        """Write a piece of an event file of a node; from one thread, and never in the way of the others.

        Raises:
            ValueError, OSError: see `EventFileFolder`.
        """
        if not self._closed:
            self._event_files(node, path, offset, data)

    def close(self) -> None:
        """Close the files; later events and lines are dropped. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._events)
            self._logs.close()


#: Fields that are objects of ours and hold nothing that anybody wrote.
_OBJECTS = {"state", "follower", "driver"}
