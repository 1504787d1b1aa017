"""The run records of this user: `$TFOS_HOME/runs/<run_id>/`. Makes, finds and lists them; what is in them is written elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfos_cli.spec.places import below
from tfos_core.errors import ConfigError
from tfos_core.shim.record import EVENTS_FILE, NODES_FOLDER
from tfos_core.shim.status import ProcessIdentity, RunState, RunStatus, read_status, write_status

__all__ = ("HOME_VARIABLE", "REMOTE_FILE", "Run", "RunStore")

HOME_VARIABLE = "TFOS_HOME"
REMOTE_FILE = "remote.json"

_RUN_ID = re.compile(r"[a-z][a-z0-9-]{0,62}-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run's folder, and where things are in it."""

    folder: Path

    @property
    def id(self) -> str:
        """Name of the run, unique in its store."""
        return self.folder.name

    @property
    def plan_path(self) -> Path:
        """What the driver shim is to do."""
        return self.folder / "plan.json"

    @property
    def command_path(self) -> Path:
        """The spark-submit command."""
        return self.folder / "command.json"

    @property
    def spec_path(self) -> Path:
        """The spec after precedence."""
        return self.folder / "spec.resolved.yaml"

    @property
    def channel_path(self) -> Path:
        """Where the follower listens; there only while it does."""
        return self.folder / "channel.json"

    @property
    def driver_log(self) -> Path:
        """Output of spark-submit, and with it of the driver."""
        return self.folder / "driver.log"

    @property
    def remote_path(self) -> Path:
        """Where its driver is; there in cluster deploy mode only."""
        return self.folder / REMOTE_FILE

    @property
    def events_path(self) -> Path:
        """One JSON event a line."""
        return self.folder / EVENTS_FILE

    @property
    def nodes_folder(self) -> Path:
        """One log per node."""
        return self.folder / NODES_FOLDER

    def status(self) -> RunStatus:
        """The status record.

        Raises:
            ConfigError: it can not be read.
        """
        try:
            return read_status(self.folder)
        except (OSError, ValueError) as exc:
            raise ConfigError(
                f"the record of run {self.id} can not be read: {exc}", f"Look into {self.folder}, or remove that folder."
            ) from exc

    def is_followed(self, status: RunStatus) -> bool:
        """Whether a process of this machine takes care of the run."""
        return any(owner.is_alive for owner in (status.follower, status.driver) if owner is not None)

    def is_abandoned(self, status: RunStatus) -> bool:
        """Whether nobody is left who could end an unfinished run. The driver of one on the cluster needs nobody here."""
        return not status.is_finished and not status.record and not self.is_followed(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStore:
    """All runs below one folder.

    Attributes:
        folder: `$TFOS_HOME/runs`; made when the first run is.
    """

    folder: Path

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> RunStore:
        """The store that `TFOS_HOME` names; `~/.tfos` by default."""
        home = environ.get(HOME_VARIABLE) or "~/.tfos"
        return cls(folder=below(Path.cwd(), home) / "runs")

    def create(self, name: str, *, master: str, now: float | None = None) -> Run:
        """Make the folder of a new run, readable by its owner only, with a first status record.

        Raises:
            ConfigError: the folder can not be made.
        """
        started = time.time() if now is None else now
        moment = datetime.fromtimestamp(started, tz=UTC).astimezone()
        run = None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            run = self._make_folder(f"{name}-{moment:%Y%m%d-%H%M%S}")
            write_status(
                run.folder,
                RunStatus(
                    run_id=run.id,
                    name=name,
                    state=RunState.SUBMITTING,
                    started=round(started, 3),
                    master=master,
                    # from the first moment, so that nobody takes the run for an abandoned one
                    follower=ProcessIdentity.of(os.getpid()),
                ),
            )
        except OSError as exc:
            if run is not None:
                shutil.rmtree(run.folder, ignore_errors=True)
            raise ConfigError(
                f"a run can not be recorded in {self.folder}: {exc.strerror or exc}",
                f"Make that folder writable, or set {HOME_VARIABLE} to a folder that is.",
            ) from exc
        return run

    def all(self) -> tuple[Run, ...]:
        """Every run, the oldest first."""
        try:
            names = [entry.name for entry in os.scandir(self.folder) if entry.is_dir() and _RUN_ID.fullmatch(entry.name)]
        except FileNotFoundError:
            return ()
        return tuple(Run(folder=self.folder / name) for name in sorted(names, key=_moment))

    def find(self, run_id: str) -> Run:
        """The run of this id, or the only one whose id begins like this.

        Raises:
            ConfigError: there is none, or more than one.
        """
        runs = self.all()
        exact = [run for run in runs if run.id == run_id]
        matches = exact or [run for run in runs if run_id and run.id.startswith(run_id)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ConfigError(
                f"{run_id!r} begins the ids of {len(matches)} runs: {_some([run.id for run in matches])}", "Type more of the id."
            )
        ids = [run.id for run in runs]
        import difflib

        close = difflib.get_close_matches(run_id, ids, n=3, cutoff=0.6)
        hint = f"Did you mean {' or '.join(close)}?" if close else "'tfos runs' lists them."
        raise ConfigError(f"there is no run {run_id!r} in {self.folder}", hint)

    def _make_folder(self, stem: str) -> Run:
        while True:
            folder = self.folder / f"{stem}-{os.urandom(2).hex()}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return Run(folder=folder)


def _moment(run_id: str) -> tuple[str, str]:
    """Date and time of an id before its name, so that the order is that of submission."""
    return run_id[-20:-5], run_id


def _some(names: list[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
