"""The follower in the background: `python -m tfos_cli.detached RUN_FOLDER` reads what to start from stdin; its own session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tfos_cli.launch import Launch
from tfos_cli.remote.follower import follower_of
from tfos_cli.runs import Run
from tfos_cli.ui.console import Console
from tfos_cli.ui.progress import PlainLines
from tfos_cli.ui.run_view import RunView
from tfos_core import events

__all__ = ("DetachedLines", "main")


def main(argv: list[str]) -> int:
    """Follow the run of that folder; says when it can be cancelled by closing stdout."""
    run = Run(folder=Path(argv[1]))
    launch = Launch.from_json(sys.stdin.read())
    return follower_of(run, launch, lambda: DetachedLines(Console())).follow().exit_code or 0


class DetachedLines(PlainLines):
    """Plain lines for `follower.log`; stdout is closed once spark-submit was started, which lets `tfos train --detach` return."""

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """As for people, and let go of whoever waits for the start."""
        super().on_event(line, ts, event, view)
        if isinstance(event, events.Submitted):
            os.dup2(2, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
