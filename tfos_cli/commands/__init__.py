"""The table of commands: one module per verb, imported when the verb is used and not before.

Summaries stand here because `tfos --help` shows them, and importing every command for one line of text would cost more than the
whole help may. Every module has an attribute `command`, a click command without arguments of its own about where to print: it
takes the `Console` with `@click.pass_obj`, and returns an exit code or None for success.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ("COMMANDS",)

#: verb -> what `tfos --help` says about it; the module is `tfos_cli.commands.<verb>`, with `_` for `-`.
COMMANDS: Mapping[str, str] = {
    "train": "Train a model on the nodes of a Spark cluster.",
    "init": "Write a spec and a program to start from.",
    "infer": "Answer rows with a saved model, or with a program.",
    "validate": "Check a job spec without starting anything.",
    "env-check": "Check this machine, or driver and executors of a job.",
    "schema": "Print the JSON Schema of the job spec.",
    "runs": "List the runs of this machine.",
    "status": "Show how a run is doing, or how it ended.",
    "logs": "Show what the nodes of a run have printed.",
    "cancel": "Stop a run and shut its cluster down.",
    "stop-streaming": "End a streaming job after the batch in flight.",
    "report": "Pack what is known about a run into one file.",
    "completion": "Print what makes a shell complete tfos.",
}
