"""`tfos runs`: the runs of this user on this machine."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import click

from tfos_cli.options import json_option, verbosity_options
from tfos_cli.runs import Run, RunStore
from tfos_cli.ui.console import Console
from tfos_cli.ui.outcome import duration
from tfos_core.errors import ConfigError
from tfos_core.shim.status import RunStatus

__all__ = ("command", "describe", "state_of")

_HEADER = ("RUN", "STATE", "CODE", "STARTED", "TOOK", "MASTER")


@click.command("runs", short_help="List the runs of this machine.")
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console) -> None:
    """List the runs of this machine.

    Reads the records below $TFOS_HOME/runs (default ~/.tfos/runs), the oldest first. With --json, one JSON list.

    \b
    Examples:
      tfos runs
      tfos runs --json
    """
    store = RunStore.of_environment(os.environ)
    found: list[tuple[Run, RunStatus]] = []
    for run in store.all():
        try:
            found.append((run, run.status()))
        except ConfigError as error:
            console.warning(error.message, error.hint)
    if console.json:
        console.result_json([describe(run, status) for run, status in found])
        return
    if not found:
        console.note(f"no runs in {store.folder}")
        return
    rows = [_HEADER, *(_row(run, status) for run, status in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        console.result("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def state_of(run: Run, status: RunStatus) -> str:
    """In one word: how it ended, how far it is, or that nobody takes care of it any more."""
    if status.is_finished:
        return status.status
    return "abandoned" if run.is_abandoned(status) else str(status.state)


def describe(run: Run, status: RunStatus) -> dict[str, object]:
    """For programs: the status record, the folder, and whether somebody still takes care of the run."""
    return {**status.to_dict(), "run_folder": str(run.folder), "abandoned": run.is_abandoned(status)}


def _row(run: Run, status: RunStatus) -> tuple[str, ...]:
    moment = datetime.fromtimestamp(status.started, tz=UTC).astimezone()
    state = state_of(run, status)
    end = status.ended or (None if state == "abandoned" else time.time())
    return (
        run.id,
        state,
        "" if status.exit_code is None else str(status.exit_code),
        f"{moment:%Y-%m-%d %H:%M:%S}",
        "" if end is None else duration(max(0.0, end - status.started)),
        status.master,
    )
