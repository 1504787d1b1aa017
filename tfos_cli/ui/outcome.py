"""The end of a run for people: how it ended, why, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tfos_cli.ui.console import Console, Style
from tfos_cli.ui.run_view import RunView
from tfos_core.events import Result

__all__ = ("duration", "next_commands", "show", "summary")

#: Lines of a traceback or of a node's last output on the screen; all of it is in the logs.
_MOST_LINES = 30


def show(console: Console, view: RunView) -> None:
    """A good result on stdout; a bad one, with the first failure, on stderr."""
    result = view.result
    if result is None:
        return
    if result.status == "success":
        for line in summary(view, result):
            console.result(line)
    else:
        _show_failure(console, result)
    for command in next_commands(view, result):
        console.note(console.styled(command, Style.HINT))


def summary(view: RunView, result: Result) -> list[str]:
    """What a successful run did."""
    lines = [f"success: {view.name} finished in {duration(result.timings.get('total_s', 0.0))} ({view.run_id})"]
    if result.inference is not None:
        lines += _answers(result.inference)
    if result.rows_fed:
        nodes = ", ".join(f"{name} {rows}" for name, rows in result.rows_per_node.items())
        lines.append(f"  rows fed   {result.rows_fed} ({nodes})")
    if any(result.steps_per_node.values()):
        lines.append(f"  batches    {', '.join(f'{name} {steps}' for name, steps in result.steps_per_node.items())}")
    if result.rows_left_over:
        nodes = ", ".join(f"{name} {rows}" for name, rows in result.rows_left_over.items())
        lines.append(f"  left over  {sum(result.rows_left_over.values())} ({nodes})")
    lines += [f"  restart {one['number']}  {one['error']}" for one in result.restarts]
    lines += [f"  instance {one['index']} on {one['host']}: {one['value']}" for one in result.instances]
    lines += [f"  model      {path}" for path in result.exports]
    phases = ", ".join(
        f"{name.removesuffix('_s')} {duration(seconds)}" for name, seconds in result.timings.items() if name != "total_s"
    )
    if phases:
        lines.append(f"  timings    {phases}")
    return lines


def _answers(inference: Mapping[str, Any]) -> list[str]:
    lines = [f"  rows       {inference['rows_in']} in, {inference['rows_out']} out", f"  output     {inference['output']}"]
    if inference["bad_rows"]:
        lines.append(f"  bad rows   {inference['rows_bad']} in {inference['bad_rows']}")
    return lines


def next_commands(view: RunView, result: Result) -> list[str]:
    """What one would type next."""
    commands = [f"  tfos logs {view.run_id}"]
    failed = (result.first_failure or {}).get("node", "")
    if failed == "driver" or (result.status == "failed" and not failed):
        commands = [f"  tfos logs {view.run_id} --node driver"]
    elif failed:
        commands = [f"  tfos logs {view.run_id} --node {failed}"]
    if view.tensorboard_url and view.run_folder:
        commands.append(f"  tensorboard --logdir {shlex.quote(f'{view.run_folder}/tensorboard')}")
    return [*commands, f"  tfos status {view.run_id}"]


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 5 s`, `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _show_failure(console: Console, result: Result) -> None:
    console.error(result.error or f"the run ended with exit code {result.exit_code}", result.hint or None)
    failure = result.first_failure
    if failure is None:
        return
    if failure.get("node") != "driver":
        console.note(f"first failure: {_place(failure)}: {failure.get('error', '')}")
    text = str(failure.get("traceback") or "").rstrip() or "\n".join(failure.get("last_lines") or ())
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        lines = ["...", *lines[-_MOST_LINES:]]
    for line in lines:
        console.note(console.styled(f"  {line}", Style.DIM))


def _place(failure: Mapping[str, Any]) -> str:
    host = failure.get("host")
    return f"{failure.get('node', '?')}{f' on {host}' if host else ''}"
