"""The status record of a run: one small JSON document that is replaced as a whole, so that readers never see half of it.

The command line writes it first, the driver shim while the job runs and at its end, and the command line again when the shim died
before that. Each writes only while the others do not.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from tfos_core import processes
from tfos_core.json_text import parse_json

__all__ = ("STATUS_FILE", "ProcessIdentity", "RunState", "RunStatus", "read_status", "write_status")

VERSION = 1
STATUS_FILE = "status.json"

_MAY_BE_NONE = ("exit_code", "first_failure", "ended", "inference")
#: The year 5138; calendars of Python end in 9999.
_LATEST_S = 1e11


class RunState(StrEnum):
    """How far a run has come; `status` of the record says how it ended."""

    SUBMITTING = "submitting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that can not be mistaken for a later one with the same number."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has this number now."""
        return cls(pid=pid, start_time=processes.start_time(pid))

    @property
    def is_alive(self) -> bool:
        """Whether that process still runs; where start times are unknown (macOS), whether its number is in use."""
        if self.start_time:
            return processes.is_same_process(self.pid, self.start_time)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What is known of a run. Times of day are seconds since the epoch, `timings` are seconds by phase.

    `status` is empty while the run goes on, then success, failed or interrupted. `follower` is the `tfos` process that takes care
    of the run, `driver` the Python process in which the job runs; None for one on the cluster, whose record is at `record`.
    """

    run_id: str
    name: str
    state: RunState
    started: float
    master: str = ""
    status: str = ""
    exit_code: int | None = None
    error: str = ""
    hint: str = ""
    first_failure: Mapping[str, Any] | None = None
    ended: float | None = None
    application_id: str = ""
    record: str = ""
    follower: ProcessIdentity | None = None
    driver: ProcessIdentity | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    rows_fed: int = 0
    rows_per_node: Mapping[str, int] = field(default_factory=dict)
    steps_per_node: Mapping[str, int] = field(default_factory=dict)
    rows_left_over: Mapping[str, int] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    restarts: tuple[Mapping[str, Any], ...] = ()
    instances: tuple[Mapping[str, Any], ...] = ()
    inference: Mapping[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended and everything about its end is recorded."""
        return self.state is RunState.FINISHED

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, with a version."""
        return {"v": VERSION} | asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunStatus:
        """Read what `to_dict` gave; unknown fields are ignored.

        Raises:
            ValueError: a field is missing or has no sense.
        """
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        try:
            values["state"] = RunState(values["state"])
            for name in ("follower", "driver"):
                values[name] = ProcessIdentity(**values[name]) if values.get(name) else None
            for name in ("exports", "restarts", "instances"):
                values[name] = tuple(values.get(name, ()))
            status = cls(**values)
            _check(status)
            return status
        except (KeyError, TypeError) as exc:
            raise ValueError(f"the status record is incomplete: {exc}") from exc


def _check(status: RunStatus) -> None:
    """Raise ValueError for values that a damaged record has and that readers would stumble over."""
    kinds: tuple[tuple[tuple[str, ...], type | tuple[type, ...]], ...] = (
        (("run_id", "name", "master", "status", "error", "hint", "application_id", "record"), str),
        (("started", "ended"), (int, float)),
        (("exit_code", "rows_fed"), int),
        (("first_failure", "timings", "rows_per_node", "steps_per_node", "rows_left_over", "inference"), Mapping),
    )
    for names, kind in kinds:
        for name in names:
            value = getattr(status, name)
            if not (isinstance(value, kind) or (value is None and name in _MAY_BE_NONE)):
                raise ValueError(f"its {name} is {value!r:.40}")
    for time in (status.started, status.ended):
        if time is not None and not 0 <= time <= _LATEST_S:
            raise ValueError(f"a time of {time!r} is in it")
    for process in (status.follower, status.driver):
        if process is not None and not (isinstance(process.pid, int) and isinstance(process.start_time, int) and process.pid > 0):
            raise ValueError("a process in it has no number")


def write_status(folder: Path, status: RunStatus) -> None:
    """Replace the record in a run's folder as a whole."""
    temporary = folder / f".{STATUS_FILE}.{os.getpid()}.{threading.get_ident()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(status.to_dict(), indent=1) + "\n")
    temporary.replace(folder / STATUS_FILE)


def read_status(folder: Path) -> RunStatus:
    """The record in a run's folder.

    Raises:
        OSError: there is none, or it can not be read.
        ValueError: it is not a status record.
    """
    # Not to wait for what a pipe of that name may say, nor to read a device to its end.
    descriptor = os.open(folder / STATUS_FILE, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a plain file")
        data = parse_json(file.read())
    if not isinstance(data, dict):
        raise ValueError(f"a status record is a JSON object, not {type(data).__name__}")
    return RunStatus.from_dict(data)
