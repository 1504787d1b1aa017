"""What is shown of a run while it goes on: the view that its events are folded into, and the renderer that draws it.

A module of its own because its imports, and those of a live view, can wait until spark-submit has been started.
"""

from __future__ import annotations

import time

from tfos_cli.diagnosis import result_of
from tfos_cli.ui.progress import Renderer, Silent
from tfos_cli.ui.run_view import RunView, apply
from tfos_core import events
from tfos_core.json_text import parse_json
from tfos_core.shim.status import RunStatus

__all__ = ("Story",)


class Story:
    """One run as its user sees it. All calls come from one thread."""

    def __init__(self, status: RunStatus, renderer: Renderer) -> None:
        self.view = RunView(run_id=status.run_id, name=status.name, master=status.master, started=status.started)
        self._renderer = renderer
        self._renderer.start(self.view)

    def take(self, line: str) -> events.Event | None:
        """Fold a line of the driver's into the view and draw it; its event, if it is one that is known.

        Lines of nodes come on the same channel and are no events.
        """
        try:
            data = parse_json(line)
            if isinstance(data, dict) and data.get("op") == "output":
                self._renderer.on_node_lines(str(data["node"]), [str(entry) for entry in data["lines"]], self.view)
                return None
            parsed = events.parse_line(line)
        except (ValueError, KeyError, TypeError):
            self._renderer.say("the driver sent a line that is no event")
            return None
        ts, event = parsed if parsed is not None else (time.time(), None)
        if event is not None:
            self.view = apply(self.view, ts, event)
        self._renderer.on_event(line, ts, event, self.view)
        return event

    def take_output(self, stream: str, line: str) -> None:
        """The driver or spark-submit printed a line."""
        self._renderer.on_driver_line(stream, line)

    def say(self, text: str) -> None:
        """Something about tfos itself that the user should read now."""
        self._renderer.say(text)

    def tick(self) -> None:
        """Time passed, and nothing else happened."""
        self._renderer.tick(self.view, time.time())

    def silence(self) -> None:
        """Draw nothing any more: nobody reads it."""
        self._renderer = Silent()

    def adopt(self, status: RunStatus) -> None:
        """The record says how the run ended; the event that said it may have been missed."""
        if self.view.result is None:
            self.view = apply(self.view, time.time(), result_of(status))

    def end(self) -> None:
        """The run is over."""
        self._renderer.finish(self.view)
