"""`tfos stop-streaming`: end a streaming job without losing the batch in flight."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfos_cli.exit_codes import ExitCode
from tfos_cli.options import complete_run_id, json_option, verbosity_options
from tfos_cli.runs import RunStore
from tfos_cli.ui.console import Console
from tfos_core.errors import ConfigError

__all__ = ("command",)


@click.command("stop-streaming", short_help="End a streaming job after the batch in flight.")
@click.argument("target", metavar="RUN_ID|HOST", shell_complete=complete_run_id)
@click.argument("port", metavar="[PORT]", required=False, type=click.IntRange(1, 65535))
@click.option("--execute", is_flag=True, help="Do it; without this, only say what would be done.")
@click.option("--secret-file", type=click.Path(path_type=Path), help="With HOST PORT: file with the secret of the cluster.")
@click.option("--timeout", type=click.FloatRange(min=0), default=600.0, show_default=True, help="Seconds to wait for the drain.")
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console, /, target: str, port: int | None, execute: bool, secret_file: Path | None, timeout: float) -> int:
    """End a streaming job after the batch in flight.

    The driver takes no more batches, the one in flight is fed to its end, and the nodes' functions come to theirs, with their
    exports. Without --execute nothing is sent. Exits 0, 2 for a run that is unknown or no streaming job, 3 when the driver refuses
    the secret, 5 when nobody answers.

    \b
    Examples:
      tfos stop-streaming clicks-20261129-131502-a1b2
      tfos stop-streaming clicks-2026 --execute
      tfos stop-streaming driver.example 41233 --secret-file secret --execute
    """
    from tfos_cli import stream_stop

    run = None
    if port is None:
        if secret_file is not None:
            raise click.UsageError("--secret-file goes with HOST PORT; the secret of a run is in its record")
        run = RunStore.of_environment(os.environ).find(target)
        if (fed := stream_stop.fed_by(run)) is not None:
            _tell(console, f"run {run.id}", "had already ended", batches=fed.batches, rows=fed.rows)
            return ExitCode.SUCCESS
        chosen = stream_stop.target_of_run(run)
    else:
        if secret_file is None:
            raise ConfigError("a driver at HOST PORT wants a secret", "Name its file with --secret-file.")
        secret = stream_stop.read_secret(secret_file)
        chosen = stream_stop.Target(name=f"{target}:{port}", host=target, port=port, secret=secret)
    if not execute:
        if console.json:
            console.result_json({"target": chosen.name, "host": chosen.host, "port": chosen.port, "executed": False})
        else:
            console.result(
                f"would ask the driver of {chosen.name} at {chosen.host}:{chosen.port} to stop after the batch in flight"
            )
            console.note("add --execute to do it")
        return ExitCode.SUCCESS
    try:
        stopped = stream_stop.ask(chosen, timeout=timeout)
    except stream_stop.StreamUnreachableError:
        # The stream may have ended between a look at its record and the question.
        if run is None or (ended := stream_stop.fed_by(run)) is None:
            raise
        stopped = ended
    _tell(console, chosen.name, "has ended", batches=stopped.batches, rows=stopped.rows)
    return ExitCode.SUCCESS


def _tell(console: Console, name: str, how: str, *, batches: int, rows: int) -> None:
    if console.json:
        console.result_json({"target": name, "executed": True, "batches": batches, "rows": rows})
    else:
        console.result(f"the stream of {name} {how}: {batches} batches with {rows} rows were fed")
