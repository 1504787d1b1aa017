"""The record on this machine of a driver on the cluster: written from the lines that the driver sends."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tfos_core.json_text import parse_json
from tfos_core.private_files import write_private
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.remote import DOCUMENTS
from tfos_core.shim.status import RunStatus

__all__ = ("LocalCopy", "read_position")

#: In the folder of the run: the number of the next line that is wanted.
POSITION_FILE = "position"

#: What the driver knows better than this machine; the rest of the status is this machine's own.
_FROM_DRIVER = {each.name for each in fields(RunStatus)} - {"run_id", "name", "started", "master", "record", "follower", "driver"}


def read_position(folder: Path) -> int:
    """The number of the next line that the record here lacks."""
    with contextlib.suppress(OSError, ValueError):
        return max(1, int((folder / POSITION_FILE).read_text(encoding="ascii")))
    return 1


class LocalCopy:
    """Writes the record of a run, one process at a time; a context manager."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._record = RecordWriter(folder, redactor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._record.close()

    @property
    def is_finished(self) -> bool:
        """Whether the driver has said how the run ended."""
        return self._record.status.is_finished

    def take(self, lines: Iterable[str], position: int) -> list[str]:
        """Write lines, remember that `position` is next, and return those that a view can show.

        A line that makes no sense is kept as it is where it can do no harm: in the events.
        """
        shown = [line for line in lines if self._write(line)]
        write_private(self._folder / POSITION_FILE, str(position))
        return shown

    def update(self, **changes: Any) -> None:
        """Change fields of the status that this machine found out itself."""
        self._record.update(**changes)

    def adopt(self, status: Any) -> None:
        """Take over a whole status of the driver; one that makes no sense is left."""
        if not isinstance(status, dict):
            return
        with contextlib.suppress(ValueError):
            known = RunStatus.from_dict(status)
            changes = {name: getattr(known, name) for name in _FROM_DRIVER}
            if not changes["application_id"]:
                del changes["application_id"]  # spark-submit may have said it before
            self._record.update(**changes)

    def _write(self, line: str) -> bool:
        """Write one line; whether a view can show it."""
        try:
            data = parse_json(line)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            return False
        match data.get("op"):
            case "output":
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._record.output(str(data["node"]), [str(entry) for entry in data["lines"]])
                    return True
                return False
            case "status":
                self.adopt(data.get("status"))
                return False
            case "file":
                # Paths are checked there; a piece that does not fit is not worth more than the others.
                with contextlib.suppress(KeyError, TypeError, ValueError, OSError):
                    piece = base64.b64decode(data["data"], validate=True)
                    self._record.event_file(str(data["node"]), str(data["path"]), int(data["offset"]), piece)
                return False
            case "document":
                if data.get("name") in DOCUMENTS:
                    write_private(self._folder / data["name"], json.dumps(data.get("data"), indent=1))
                return False
            case None:
                self._record.line(json.dumps(data, separators=(",", ":")))
                return True
            case _:
                return False
