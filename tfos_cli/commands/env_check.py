"""`tfos env-check`: what is missing on this machine, or on any of a cluster, before a job finds out."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfos_cli.exit_codes import ExitCode
from tfos_cli.options import json_option, spec_options, verbosity_options
from tfos_cli.ui.console import Console

__all__ = ("command",)


@click.command("env-check", short_help="Check this machine, or driver and executors of a job.")
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@spec_options
@json_option
@verbosity_options
@click.pass_obj
def command(
    console: Console,
    /,
    spec: Path | None,
    overrides: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    env_vars: tuple[str, ...],
) -> int:
    """Check this machine, or driver and executors of a job.

    Without SPEC: Python, Java, Spark, TensorFlow, packages that do not pair, GPUs, memory, disk, limits. With SPEC: submits a small
    job with the application that the spec asks for, and looks at its driver and at every executor: the same versions, folders,
    the program, network, clocks, GPUs, the paths of the spec. Exits 3 when something keeps jobs from running.

    \b
    Examples:
      tfos env-check
      tfos env-check job.yaml --master spark://host:7077
      tfos env-check job.yaml --json
    """
    from tfos_cli.bundle.collect import ENV_CHECK_FILE
    from tfos_cli.envcheck import result as results
    from tfos_cli.envcheck.check import Status
    from tfos_cli.envcheck.local import local_checks
    from tfos_cli.runs import RunStore

    home = RunStore.of_environment(os.environ).folder.parent
    if spec is None:
        if overrides or master or conf or env_vars:
            raise click.UsageError("--set, --master, --conf and --env change a spec, and there is none")
        result = results.CheckResult(checks=tuple(local_checks(os.environ)))
    else:
        from tfos_cli.envcheck.follow import check_cluster
        from tfos_cli.spec.loader import load_spec

        resolved = load_spec(spec, overrides, os.environ, conf=conf, env_vars=env_vars, master=master)
        found = check_cluster(console, resolved, os.environ)
        if isinstance(found, ExitCode):
            return found
        result = found
        if result.run_id is not None:
            results.keep(result, home / "runs" / result.run_id / ENV_CHECK_FILE)
    results.keep(result, home / ENV_CHECK_FILE)
    results.show(console, result)
    return ExitCode.ENVIRONMENT if result.status is Status.FAILURE else ExitCode.SUCCESS
