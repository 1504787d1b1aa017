"""`tfos status`: one run, how it is doing or how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from tfos_cli.commands.runs import describe, state_of
from tfos_cli.options import json_option, run_id_argument, verbosity_options
from tfos_cli.runs import Run, RunStore
from tfos_cli.ui.console import Console
from tfos_cli.ui.outcome import duration
from tfos_cli.ui.run_view import RunView, replay
from tfos_core.shim.status import RunStatus

__all__ = ("command",)


@click.command("status", short_help="Show how a run is doing, or how it ended.")
@run_id_argument
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console, /, run_id: str) -> None:
    """Show how a run is doing, or how it ended.

    RUN_ID may be shortened as long as only one run begins with it. With --json, the status record. The exit code says only whether
    the record could be read.

    \b
    Examples:
      tfos status digits-20261129-131502-a1b2
      tfos status digits-2026 --json
    """
    run = RunStore.of_environment(os.environ).find(run_id)
    status = run.status()
    if status.record and not status.is_finished:
        from tfos_cli.remote.catch_up import catch_up  # which has more to import than most runs need

        status, trouble = catch_up(run, os.environ)
        if trouble:
            console.warning(trouble)
    if console.json:
        console.result_json(describe(run, status))
        return
    for label, text in _lines(run, status, replay(run.events_path)):
        console.result(f"{label:<12} {text}".rstrip())


def _lines(run: Run, status: RunStatus, view: RunView) -> Iterator[tuple[str, str]]:
    state = state_of(run, status)
    yield "run", run.id
    yield "state", state if status.is_finished or state == "abandoned" else f"{state} ({view.phase})"
    if status.exit_code is not None:
        yield "exit code", str(status.exit_code)
    if status.error:
        yield "error", status.error
    if status.hint:
        yield "hint", status.hint
    yield from _places(status)
    yield "started", f"{datetime.fromtimestamp(status.started, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    if state != "abandoned":
        yield "took", duration(max(0.0, (status.ended or time.time()) - status.started))
    if view.feed is not None and not status.is_finished:
        feed = view.feed
        yield (
            "feed",
            f"epoch {feed.epoch} of {feed.epochs}, {feed.partitions_done} of {feed.partitions} partitions, {feed.rows} rows",
        )
    if view.stream is not None:
        yield "stream", f"{view.stream.batches} batches with {view.stream.rows} rows{', ended' if view.stream.has_ended else ''}"
    yield from _answers(status, view)
    for node in view.nodes:
        gpus = f"GPU {','.join(node.gpus)}" if node.gpus else ""
        parts = [str(node.phase), node.host, gpus, f"{node.rows} rows" if node.rows else "", node.error]
        yield node.name, ", ".join(part for part in parts if part)
    if status.rows_fed:
        yield "rows fed", str(status.rows_fed)
    for restart in status.restarts:
        yield f"restart {restart['number']}", str(restart["error"])
    for path in status.exports:
        yield "model", path
    yield "record", str(run.folder)


def _places(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Where the run is, on the cluster's side."""
    yield "master", status.master
    if status.application_id:
        yield "application", status.application_id
    if status.record:
        yield "on cluster", status.record


def _answers(status: RunStatus, view: RunView) -> Iterator[tuple[str, str]]:
    """Of a job that answers rows."""
    if status.inference is not None:
        counts = status.inference
        yield "rows", f"{counts['rows_in']} in, {counts['rows_out']} out, {counts['rows_bad']} bad"
        yield "output", str(counts["output"])
    elif view.inference is not None and not status.is_finished:
        done = f"{view.inference.partitions_done} of {view.inference.partitions} partitions"
        yield "answered", f"{view.inference.rows} rows, {done}"
