"""`tfos train`: submit a job, follow it, and end with its exit code."""

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


@click.command("train", short_help="Train a model on the nodes of a Spark cluster.")
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
    """Train a model on the nodes of a Spark cluster.

    Submits the job that SPEC describes, shows how it goes, and ends with its exit code. Without a master the executors are
    processes of this machine. Ctrl-C shuts the cluster down, a second one kills it.

    \b
    Examples:
      tfos train job.yaml
      tfos train job.yaml --master spark://host:7077 --set num_executors=4
      tfos train job.yaml --dry-run
      id=$(tfos train job.yaml --detach)
    """

    def load() -> ResolvedSpec:
        from tfos_cli.spec.loader import load_spec

        return load_spec(spec, overrides, os.environ, conf=conf, env_vars=env_vars, master=master, verb="train")

    return run_job(console, load, **how)
