"""`tfos logs`: what the nodes of a run have printed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import click

from tfos_cli.log_reader import LogFile, log_files, read_new
from tfos_cli.options import run_id_argument, verbosity_options
from tfos_cli.runs import Run, RunStore
from tfos_cli.ui.console import Console
from tfos_cli.ui.progress import printable

__all__ = ("command",)

#: Between two looks at files that have not grown: soon enough for eyes, cheap enough for a night.
_LOOK_EVERY_S = 0.25
#: The same for a run on a cluster that nobody here follows: its record is on another machine.
_LOOK_SELDOM_S = 5.0


@click.command("logs", short_help="Show what the nodes of a run have printed.")
@run_id_argument
@click.option("--node", metavar="NODE", help="One node, as worker:0, or 'driver' for spark-submit's own output.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@verbosity_options
@click.pass_obj
def command(console: Console, /, run_id: str, node: str | None, follow: bool) -> None:
    """Show what the nodes of a run have printed.

    Without --node the lines of all nodes, each with its node in front.

    \b
    Examples:
      tfos logs digits-20261129-131502-a1b2
      tfos logs digits-2026 --node worker:0 --follow
      tfos logs digits-2026 --node driver
    """
    run = RunStore.of_environment(os.environ).find(run_id)
    _refresh(console, run)
    show = _Printer(console, prefixed=node is None)
    files = log_files(run, node)
    if follow:
        _follow(console, run, files, show)
    else:
        read_new(files(), show)
    for file in files():
        rest = file.rest()
        if rest is not None:
            show(file.name, rest)
        file.close()
    if not show.count:
        yet = "" if run.status().is_finished else " yet"
        console.note(f"{node} has printed nothing{yet}" if node else f"no node has printed anything{yet}")


class _Printer:
    def __init__(self, console: Console, *, prefixed: bool) -> None:
        self._console = console
        self._prefixed = prefixed
        self.count = 0

    def __call__(self, name: str, line: str) -> None:
        self.count += 1
        if self._console.stdout.isatty():
            line = printable(line)  # what a node says must not steer the terminal; a file gets it as it is
        self._console.result(f"{name} | {line}" if self._prefixed else line)


def _refresh(console: Console, run: Run) -> None:
    """Bring home what a driver on the cluster has recorded since somebody here last followed it."""
    status = run.status()
    if status.record and not status.is_finished and not run.is_followed(status):
        from tfos_cli.remote.catch_up import catch_up  # which has more to import than most runs need

        _, trouble = catch_up(run, os.environ)
        if trouble:
            console.warning(trouble)


def _follow(console: Console, run: Run, files: Callable[[], list[LogFile]], show: _Printer) -> None:
    """Read until the run has ended, or nobody is left who could end it."""
    while True:
        # the status first: what was written before the end is read after it
        status = run.status()
        over = status.is_finished or run.is_abandoned(status)
        found = read_new(files(), show)
        if over:
            return
        if not found and status.record and not run.is_followed(status):
            time.sleep(_LOOK_SELDOM_S)
            _refresh(console, run)
        elif not found:
            time.sleep(_LOOK_EVERY_S)
