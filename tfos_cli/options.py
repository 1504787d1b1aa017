"""Click options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tfos_cli.ui.console import Console, Verbosity

__all__ = (
    "complete_run_id",
    "json_option",
    "run_id_argument",
    "spec_argument",
    "spec_options",
    "submission_options",
    "verbosity_options",
)

Function = Callable[..., Any]


def json_option(function: Function) -> Function:
    """`--json`: results and errors as JSON on stdout."""
    return _console_flag("--json", help="Write JSON to stdout, and nothing else there.", callback=_set_json)(function)


def verbosity_options(function: Function) -> Function:
    """`-q`, `-v` and `--debug`, before or after the verb."""
    function = _console_flag("--debug", help="Show the traceback of an error.", callback=_set_debug)(function)
    function = _console_flag("-v", "--verbose", help="Say more.", callback=_set_verbose)(function)
    return _console_flag("-q", "--quiet", help="Say only what went wrong.", callback=_set_quiet)(function)


def spec_argument(function: Function) -> Function:
    """The path of a job spec, as `spec: Path`. That it exists is checked by the loader, whose message is better."""
    return click.argument("spec", type=click.Path(path_type=Path))(function)


def run_id_argument(function: Function) -> Function:
    """The id of a run, as `run_id: str`."""
    return click.argument("run_id", metavar="RUN_ID", shell_complete=complete_run_id)(function)


def spec_options(function: Function) -> Function:
    """What changes a spec from the command line: `overrides`, `master`, `conf` and `env_vars`, as `load_spec` takes them."""
    for option in (
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the spec, as in spark.queue=ml."),
        click.option("--master", metavar="URL", help="Where to run: spark://host:port, yarn, k8s://... [default: this machine]"),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark property, as in spark-submit."),
        click.option(
            "-e", "--env", "env_vars", multiple=True, metavar="NAME=VALUE", help="An environment variable for every node."
        ),
    ):
        function = option(function)
    return function


def submission_options(function: Function) -> Function:
    """What `train` and `infer` take beside a spec and its changes: `dry_run`, `detach` and `no_progress`."""
    for option in (
        click.option("--no-progress", is_flag=True, help="Plain lines instead of a live view."),
        click.option("--detach", is_flag=True, help="Print the run id and return; the run goes on."),
        click.option("--dry-run", is_flag=True, help="Show what would be submitted, and start nothing."),
    ):
        function = option(function)
    return function


def _console_flag(*names: str, help: str, callback: Callable[[Console], None]) -> Callable[[Function], Function]:  # noqa: A002
    return click.option(*names, is_flag=True, expose_value=False, is_eager=True, help=help, callback=_ConsoleCallback(callback))


class _ConsoleCallback:
    """Applies a flag to the console of the command line."""

    def __init__(self, apply: Callable[[Console], None]) -> None:
        self._apply = apply

    def __call__(self, ctx: click.Context, param: click.Parameter, value: bool) -> None:
        console = ctx.find_object(Console)
        if value and console is not None:
            self._apply(console)


def complete_run_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of runs for the shell, the newest first."""
    from tfos_cli.runs import RunStore

    runs = RunStore.of_environment(os.environ).all()
    return [CompletionItem(run.id) for run in reversed(runs) if run.id.startswith(incomplete)]


def _set_json(console: Console) -> None:
    console.json = True


def _set_debug(console: Console) -> None:
    console.debug = True
    console.verbosity = Verbosity.DEBUG


def _set_verbose(console: Console) -> None:
    console.verbosity = max(console.verbosity, Verbosity.VERBOSE)


def _set_quiet(console: Console) -> None:
    console.verbosity = Verbosity.QUIET
