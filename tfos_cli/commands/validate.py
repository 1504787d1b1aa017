"""`tfos validate`: the spec and the rules of TensorFlow on Spark, without starting anything."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfos_cli.exit_codes import ExitCode
from tfos_cli.options import json_option, spec_argument, spec_options
from tfos_cli.spec.errors import SpecError
from tfos_cli.spec.loader import load_spec
from tfos_cli.spec.report import Report, findings_of, summarise
from tfos_cli.spec.rules import check
from tfos_cli.ui.console import Console

__all__ = ("command",)


@click.command("validate")
@spec_argument
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@spec_options
@json_option
@click.pass_obj
def command(
    console: Console,
    spec: Path,
    strict: bool,
    overrides: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    env_vars: tuple[str, ...],
) -> ExitCode:
    """Check a job spec without starting anything.

    Reads SPEC, applies TFOS_SET_* and the options as `tfos train` does, and checks what can be known before a job is submitted.
    Exits 2 when something is wrong.

    \b
    Examples:
      tfos validate job.yaml
      tfos validate job.yaml --strict --json
      tfos validate job.yaml --set num_executors=4 --master yarn
    """
    try:
        resolved = load_spec(spec, overrides, os.environ, conf=conf, env_vars=env_vars, master=master)
    except SpecError as error:
        report = Report(file=str(spec), findings=findings_of(error), summary=None, strict=strict)
    else:
        report = Report(file=str(spec), findings=check(resolved), summary=summarise(resolved), strict=strict)
    if console.json:
        console.result_json(report.to_dict())
    else:
        for line in report.lines():
            console.result(line)
    return ExitCode.SUCCESS if report.is_ok else ExitCode.USAGE
