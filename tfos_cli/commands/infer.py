"""`tfos infer`: submit a job that answers rows, follow it, and end with its exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfos_cli.job_command import run_job
from tfos_cli.options import json_option, spec_argument, spec_options, submission_options, verbosity_options
from tfos_cli.ui.console import Console

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("command",)


@click.command("infer", short_help="Answer rows with a saved model, or with a program.")
@spec_argument
@spec_options
@submission_options
@click.option("--strict", is_flag=True, help="Treat warnings about the spec as errors.")
@json_option
@verbosity_options
@click.pass_obj
def command(
    console: Console,
    /,
    spec: Path,
    overrides: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    env_vars: tuple[str, ...],
    **how: bool,
) -> int:
    """Answer rows with a saved model, or with a program.

    Reads the data of SPEC with Spark, lets the model of infer.export_dir compute one output row for every input row, and writes
    them to infer.output. Without infer.export_dir the entrypoint answers the rows. The output appears when it is complete, or
    not at all.

    \b
    Examples:
      tfos infer job.yaml
      tfos infer job.yaml --set infer.output.mode=overwrite
      tfos infer job.yaml --set infer.export_dir=models/digits --dry-run
    """

    def load() -> ResolvedSpec:
        from tfos_cli.infer_places import require_places
        from tfos_cli.spec.loader import load_spec

        resolved = load_spec(spec, overrides, os.environ, conf=conf, env_vars=env_vars, master=master, verb="infer")
        if not how["dry_run"]:
            require_places(resolved)
        return resolved

    return run_job(console, load, **how)
