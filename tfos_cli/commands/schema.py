"""`tfos schema`: the keys of a job spec."""

from __future__ import annotations

import json

import click

from tfos_cli.spec.schema import json_schema, reference_table
from tfos_cli.ui.console import Console

__all__ = ("command",)


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Write the tables of docs/spec.md instead.")
@click.pass_obj
def command(console: Console, markdown: bool) -> None:
    """Print the JSON Schema of the job spec.

    Editors that know YAML language servers check a spec while it is written when its first line names the schema.

    \b
    Examples:
      tfos schema > tfos.schema.json
      # yaml-language-server: $schema=tfos.schema.json      (first line of a spec)
    """
    console.result(reference_table().rstrip("\n") if markdown else json.dumps(json_schema(), indent=2))
