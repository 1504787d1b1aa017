"""`tfos report`: everything about one run in one file, for somebody who was not there."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfos_cli.options import json_option, run_id_argument, verbosity_options
from tfos_cli.runs import RunStore
from tfos_cli.ui.console import Console

__all__ = ("command",)


@click.command("report", short_help="Pack what is known about a run into one file.")
@run_id_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write. [default: tfos-report-RUN_ID.tar.gz here]")
@click.option("--lines", type=click.IntRange(min=1), default=500, show_default=True, help="Last lines of each log.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console, /, run_id: str, output: Path | None, lines: int, force: bool) -> None:
    """Pack what is known about a run into one file.

    The resolved spec, the command, versions, events, status, the last lines of every node and of the driver, and what env-check
    found, if it was run. Secrets are taken out. Works while the run goes on, and afterwards.

    \b
    Examples:
      tfos report digits-20261129-131502-a1b2
      tfos report digits-2026 --output /tmp/digits.tar.gz
    """
    from tfos_cli.bundle.collect import collect, write_archive

    run = RunStore.of_environment(os.environ).find(run_id)
    report = collect(run, os.environ, lines=lines)
    path = output or Path(f"tfos-report-{run.id}.tar.gz")
    write_archive(report, path, force=force)
    if console.json:
        console.result_json({"report": str(path), "members": list(report.members), "secrets": report.secrets})
        return
    console.result(str(path))
    console.note(f"{len(report.members)} files, {report.secrets} secrets taken out; look through it before you send it on")
