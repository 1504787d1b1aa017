"""Completion in bash, zsh and fish: the script that a shell loads, and the answers to what it then asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import click
from click.shell_completion import get_completion_class, shell_complete

__all__ = ("SHELLS", "VARIABLE", "answer", "script")

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")

#: What the script sets when it asks; click's name for a program called `tfos`.
VARIABLE = "_TFOS_COMPLETE"


def script(cli: click.Command, shell: Shell) -> str:
    """What the shell has to load once."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"click knows no completion for {shell}")
    return kind(cli, {}, "tfos", VARIABLE).source()


def answer(cli: click.Command, environ: Mapping[str, str]) -> int:
    """Answer the shell that asks for completions, on stdout; returns an exit code."""
    return shell_complete(cli, {}, "tfos", VARIABLE, environ[VARIABLE])
