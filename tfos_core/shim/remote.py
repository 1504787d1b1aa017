"""The run record of a driver on the cluster: a folder of its own while it runs, whose content goes home through the uplink."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfos_core.jobplan import JobPlan, RemotePlan
from tfos_core.json_text import parse_json
from tfos_core.shim.probing import PROBE_FILE
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import RunState, RunStatus, write_status
from tfos_core.uplink.hadoop_folder import open_folder
from tfos_core.uplink.live import LiveLine
from tfos_core.uplink.private import Private
from tfos_core.uplink.uplink import Uplink

__all__ = ("DOCUMENTS", "RECORD_FOLDER", "RemoteRecord", "localized", "open_uplink", "output_sent")

#: In the working folder of the driver.
RECORD_FOLDER = "tfos-run"
#: JSON files that the command line reads when the run has ended.
DOCUMENTS = (PROBE_FILE,)
#: What the driver itself prints is that of a node of this name.
DRIVER_NODE = "driver:0"

_LONGEST_LINE_BYTES = 64 * 1024
_COPY_END_S = 2.0


class RemoteRecord(RecordWriter):
    """A `RecordWriter` that tells the uplink what does not travel as an event: the status, and pieces of event files."""

    def __init__(self, folder: Path, redactor: Redactor, uplink: Uplink) -> None:
        super().__init__(folder, redactor)
        self._uplink = uplink

    def update(self, **changes: Any) -> None:
        if changes.get("state") is RunState.FINISHED:
            self._send_documents()
        before = self.status
        super().update(**changes)
        if self.status is not before:
            # The process that is meant there is none of the submitting machine.
            self._uplink.status(replace(self.status, driver=None).to_dict())

    def _send_documents(self) -> None:
        """What the job has left in its folder for the command line, before the end is told."""
        for name in DOCUMENTS:
            with contextlib.suppress(OSError, ValueError):
                data = parse_json((self._folder / name).read_text(encoding="utf-8"))
                self._uplink.send(json.dumps({"op": "document", "name": name, "data": data}, separators=(",", ":")))

    def event_file(self, node: str, path: str, offset: int, data: bytes) -> None:
        piece = {"op": "file", "node": node, "path": path, "offset": offset, "data": base64.b64encode(data).decode()}
        self._uplink.send(json.dumps(piece, separators=(",", ":")))


def localized(plan: JobPlan, remote: RemotePlan, folder: Path) -> JobPlan:
    """The plan with a record folder that is here; makes that folder, with a first status."""
    folder = folder.absolute()
    folder.mkdir(mode=0o700, exist_ok=True)
    status = RunStatus(
        run_id=plan.run_id,
        name=plan.name,
        state=RunState.STARTING,
        started=remote.submitted,
        master=remote.master,
        record=remote.record,
    )
    write_status(folder, status)
    return replace(plan, run_folder=str(folder), channel=None)


@contextlib.contextmanager
def open_uplink(
    remote: RemotePlan, private: Private, *, jvm: Callable[[], tuple[Any, Any]], on_shutdown: Callable[[str], None]
) -> Iterator[Uplink]:
    """The uplink of a run, until all is said.

    Raises:
        StorageError: neither is there a place to write the record to, nor a machine that listens.
    """
    live = LiveLine(private.host, private.port, private.secret, on_shutdown=on_shutdown) if private.port else None
    try:
        folder = open_folder(remote.record, jvm)
        folder.make()
    except OSError:
        if live is None:
            raise
        folder = None
    uplink = Uplink(folder, live, on_shutdown=on_shutdown)
    try:
        yield uplink
    finally:
        uplink.close()


@contextlib.contextmanager
def output_sent(send: Callable[[str, list[str]], object]) -> Iterator[None]:
    """While open, lines that this process prints are sent as well as printed: the driver has no terminal on the cluster.

    Args:
        send: gets the node's name and lines.
    """
    with contextlib.ExitStack() as stack:
        for descriptor in (1, 2):
            stack.enter_context(_copied(descriptor, send))
        yield


@contextlib.contextmanager
def _copied(descriptor: int, send: Callable[[str, list[str]], object]) -> Iterator[None]:
    original = os.dup(descriptor)
    reading, writing = os.pipe()
    os.dup2(writing, descriptor)
    os.close(writing)
    thread = threading.Thread(target=_copy, args=(reading, original, send), name="tfos-output", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(original, descriptor)
        # A child that has the pipe too may hold it open.
        thread.join(_COPY_END_S)


def _copy(reading: int, original: int, send: Callable[[str, list[str]], object]) -> None:
    with os.fdopen(reading, "rb") as lines:
        while line := lines.readline(_LONGEST_LINE_BYTES):
            with contextlib.suppress(OSError):
                os.write(original, line)
            send(DRIVER_NODE, [line.decode("utf-8", "replace").rstrip("\r\n")])
    with contextlib.suppress(OSError):
        os.close(original)
