"""Bringing home what a driver on the cluster has recorded while nobody here followed the run: `tfos status`, `logs`, `cancel`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict

from tfos_cli.diagnosis import Evidence, diagnose
from tfos_cli.remote.applications import Applications, applications_of
from tfos_cli.remote.follower import storage_environment
from tfos_cli.remote.local_copy import LocalCopy, read_position
from tfos_cli.remote.place import RemoteRun
from tfos_cli.remote.verdict import error_of
from tfos_cli.runs import Run
from tfos_cli.ui.run_view import replay
from tfos_core.errors import TfosError
from tfos_core.json_text import parse_json
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import STATUS_FILE, RunState, RunStatus
from tfos_core.uplink.folder import RecordFolder, StorageFolder
from tfos_core.uplink.journal import CANCEL_FILE, JournalReader

__all__ = ("Unfollowed", "catch_up")


class Unfollowed:
    """A run in cluster deploy mode whose follower is gone, or never was on this machine for long.

    Raises:
        TfosError, OSError: its record can not be reached from here.
    """

    def __init__(
        self, run: Run, remote: RemoteRun, environ: Mapping[str, str], *, applications: Applications | None = None
    ) -> None:
        storage_environment(remote)
        self._run = run
        self._folder: RecordFolder = StorageFolder(remote.record)
        self._applications = applications or applications_of(remote, environ)

    @classmethod
    def of(cls, run: Run, status: RunStatus, environ: Mapping[str, str]) -> Unfollowed | None:
        """For a run that has not ended, is on a cluster, and has nobody here who follows it."""
        if status.is_finished or not status.record or run.is_followed(status):
            return None
        remote = RemoteRun.read(run.folder)
        return None if remote is None else cls(run, remote, environ)

    def read(self) -> RunStatus:
        """Write what is new into the record here, and return the status."""
        position = read_position(self._run.folder)
        lines = JournalReader(self._folder, position=position).read()
        with LocalCopy(self._run.folder, Redactor(())) as copy:
            if lines:
                copy.take([line for _, line in lines], lines[-1][0] + 1)
            if not copy.is_finished and (data := self._folder.get(STATUS_FILE)) is not None:
                copy.adopt(_document(data))
        return self._run.status()

    def ask_manager(self) -> RunStatus:
        """When the manager says that the application is over and its driver said nothing, end the record here."""
        status = self._run.status()
        if status.is_finished or not status.application_id:
            return status
        report = self._applications.report(status.application_id)
        if report is None or not report.is_over:
            return status
        status = self.read()  # it may have said it in this very moment
        if status.is_finished:
            return status
        started = status.state is not RunState.SUBMITTING
        error = error_of(status.application_id, report, why=self._applications.why(report), driver_started=started)
        if error is not None:
            self._end(status, error)
        return self._run.status()

    def request_end(self, reason: str) -> bool:
        """Ask the driver to end the job; False when that was asked before."""
        if self._folder.get(CANCEL_FILE) is not None:
            return False
        self._folder.put(CANCEL_FILE, _request(reason))
        return True

    def kill(self) -> bool:
        """Have the manager end the application; whether it took the order."""
        status = self._run.status()
        return bool(status.application_id) and self._applications.kill(status.application_id)

    def _end(self, status: RunStatus, error: TfosError) -> None:
        evidence = Evidence(
            status=status,
            driver_log=str(self._run.driver_log),
            error=error,
            stop_reason="",
            driver_started=True,
            exit_code=None,
            last_lines=(),
            view=replay(self._run.events_path),
        )
        result = diagnose(evidence)
        with RecordWriter(self._run.folder, Redactor(())) as record:
            record.event(result)
            record.update(state=RunState.FINISHED, ended=round(time.time(), 3), **asdict(result))


def catch_up(run: Run, environ: Mapping[str, str]) -> tuple[RunStatus, str]:
    """The status of a run, with its record on the cluster read when nobody else does; and what kept that from working.

    A question to the manager takes seconds, so it is asked only when the record does not know the end.
    """
    status = run.status()
    try:
        unfollowed = Unfollowed.of(run, status, environ)
        if unfollowed is None:
            return status, ""
        status = unfollowed.read()
        return (status if status.is_finished else unfollowed.ask_manager()), ""
    except (TfosError, OSError) as exc:
        return run.status(), f"the record at {status.record} can not be read: {exc}"


def _document(data: bytes) -> object:
    try:
        return parse_json(data)
    except ValueError:
        return None


def _request(reason: str) -> bytes:
    return json.dumps({"reason": reason}).encode()
