"""`tfos completion`: what makes a shell complete commands, options, run ids and templates."""

from __future__ import annotations

import click

from tfos_cli.completion import SHELLS, Shell, script
from tfos_cli.options import verbosity_options
from tfos_cli.ui.console import Console

__all__ = ("command",)


@click.command("completion", short_help="Print what makes a shell complete tfos.")
@click.argument("shell", type=click.Choice(SHELLS))
@verbosity_options
@click.pass_context
def command(context: click.Context, /, shell: Shell) -> None:
    """Print what makes a shell complete tfos.

    Load it where the shell starts: in ~/.bashrc, in ~/.zshrc behind `compinit`, or in ~/.config/fish/completions/tfos.fish.
    It completes commands, options, files, ids of runs and names of templates.

    \b
    Examples:
      eval "$(tfos completion bash)"
      eval "$(tfos completion zsh)"
      tfos completion fish > ~/.config/fish/completions/tfos.fish
    """
    console: Console = context.obj
    console.result(script(context.find_root().command, shell).strip("\n"))
