"""`tfos init`: a spec and a program to start from."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tfos_cli.options import json_option, verbosity_options
from tfos_cli.scaffold import TEMPLATES, Template, find_template, write_template
from tfos_cli.ui.console import Console

__all__ = ("command",)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of templates for the shell."""
    return [CompletionItem(one.name, help=one.summary) for one in TEMPLATES.values() if one.name.startswith(incomplete)]


@click.command("init", short_help="Write a spec and a program to start from.")
@click.argument("template", required=False, shell_complete=_complete)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--force", is_flag=True, help="Replace files that are there.")
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console, /, template: str | None, folder: Path, force: bool) -> None:
    """Write a spec and a program to start from.

    Writes the files of TEMPLATE into DIR, by default the current folder, and refuses when one of them is there. They run as they
    are, on this machine, and their comments say what to change. Without TEMPLATE: which ones there are.

    \b
    Examples:
      tfos init
      tfos init feed-dataset my-job
    """
    if template is None:
        _list(console)
        return
    chosen = find_template(template)
    files = write_template(chosen, folder, force=force)
    commands = chosen.next_commands(folder)
    if console.json:
        console.result_json({"template": chosen.name, "files": [str(path) for path in files], "next": list(commands)})
        return
    for path in files:
        console.result(str(path))
    console.note("\n".join(commands))


def _list(console: Console) -> None:
    templates: tuple[Template, ...] = tuple(TEMPLATES.values())
    if console.json:
        console.result_json([{"template": one.name, "summary": one.summary} for one in templates])
        return
    width = max(len(one.name) for one in templates)
    for one in templates:
        console.result(f"{one.name.ljust(width)}  {one.summary}")
