"""How a run is shown while it goes on: as plain lines, as JSON lines, or (`board.py`) as a view that redraws itself."""

from __future__ import annotations

import re
from typing import Protocol

from tfos_cli.ui import outcome
from tfos_cli.ui.console import Console, Verbosity
from tfos_cli.ui.run_view import RunView
from tfos_core import events

__all__ = (
    "JsonLines",
    "PlainLines",
    "Renderer",
    "Silent",
    "choose_renderer",
    "is_worth_showing",
    "plain_line",
    "printable",
)

#: Between two lines about the same feed; a log of a night has to stay readable.
_FEED_EVERY_S = 10.0

#: What TensorFlow and its C++ libraries log: in `tfos logs`, but not on the screen of somebody who waits for an accuracy.
_LIBRARY_LOG = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: [IWEF] "
    r"|[IWEF]0000 00:00:"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\."
    r"|(WARNING|INFO):tensorflow"
    r"|WARNING: All log messages before absl"
    r"|To enable the following instructions"
)
_TERMINAL_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Renderer(Protocol):
    """Shows a run. All calls come from one thread."""

    def start(self, view: RunView) -> None:
        """The run begins; its id is known."""

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """An event arrived as `line`, and `view` is the state after it; the event is None when its kind is unknown."""

    def on_driver_line(self, stream: str, line: str) -> None:
        """The driver or spark-submit printed a line."""

    def on_node_lines(self, node: str, lines: list[str], view: RunView) -> None:
        """A node printed lines."""

    def say(self, text: str) -> None:
        """Something about tfos itself that the user should read now."""

    def tick(self, view: RunView, now: float) -> None:
        """Time passed; called about once a second while nothing else happens."""

    def finish(self, view: RunView) -> None:
        """The run is over, and its result is in the view."""


def choose_renderer(console: Console, *, no_progress: bool) -> Renderer:
    """The renderer for a console: JSON when that was asked for, a live view on a terminal, plain lines elsewhere."""
    if console.json:
        return JsonLines(console)
    if console.is_live and not no_progress and console.verbosity >= Verbosity.NORMAL:
        from tfos_cli.ui.board import Board  # imports rich, which costs 0.1 s that nobody else should pay

        return Board(console)
    return PlainLines(console)


class JsonLines:
    """Every event as it is on stdout, and nothing else there."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(self, view: RunView) -> None:
        """The first event says it."""

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """Pass the line on, also when its kind is unknown here."""
        self._console.result(line)

    def on_driver_line(self, stream: str, line: str) -> None:
        """Everything of the driver's is for people."""
        self._console.detail(line)

    def on_node_lines(self, node: str, lines: list[str], view: RunView) -> None:
        """Only in the logs."""

    def say(self, text: str) -> None:
        """On stderr."""
        self._console.note(text)

    def tick(self, view: RunView, now: float) -> None:
        """Nothing happens between events."""

    def finish(self, view: RunView) -> None:
        """The last event said it."""


class Silent:
    """Shows nothing: nobody is there to read it."""

    def start(self, view: RunView) -> None:
        """Nothing."""

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """Nothing."""

    def on_driver_line(self, stream: str, line: str) -> None:
        """Nothing."""

    def on_node_lines(self, node: str, lines: list[str], view: RunView) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def tick(self, view: RunView, now: float) -> None:
        """Nothing."""

    def finish(self, view: RunView) -> None:
        """Nothing."""


class PlainLines:
    """One line per thing that happened, on stderr; the user's own output and the result on stdout."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._feed_shown = 0.0

    def start(self, view: RunView) -> None:
        """The first event says it."""

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """Say what happened; progress of a feed at most every ten seconds."""
        if isinstance(event, (events.FeedProgress, events.InferProgress)):
            if ts - self._feed_shown < _FEED_EVERY_S:
                return
            self._feed_shown = ts
        if isinstance(event, events.Warned):
            self._console.warning(event.message, event.hint or None)
            return
        text = plain_line(event) if event is not None else ""
        if text:
            self._console.note(text)

    def on_driver_line(self, stream: str, line: str) -> None:
        """What the user's code prints goes to stdout, Spark's talk to stderr when asked for."""
        if stream == "stdout":
            self._console.result(line)
        else:
            self._console.detail(line)

    def on_node_lines(self, node: str, lines: list[str], view: RunView) -> None:
        """The user's prints of the first node, or of all with -v, on stdout with the node in front."""
        everything = self._console.verbosity >= Verbosity.VERBOSE
        for line in lines:
            if everything or (node == view.first_node and is_worth_showing(line)):
                self._console.result(f"{node} | {printable(line)}")

    def say(self, text: str) -> None:
        """On stderr."""
        self._console.note(text)

    def tick(self, view: RunView, now: float) -> None:
        """Nothing happens between events."""

    def finish(self, view: RunView) -> None:
        """The result, and what to do next."""
        outcome.show(self._console, view)


def is_worth_showing(line: str) -> bool:
    """Whether a line is more than the chatter of libraries."""
    return bool(line.strip()) and not _LIBRARY_LOG.match(line)


def printable(line: str) -> str:
    """A line that can not move the cursor: of a progress bar, its last state."""
    return _TERMINAL_CONTROL.sub("", line.rstrip("\r\n\b").rpartition("\r")[2].rpartition("\b")[2])


def plain_line(event: events.Event) -> str:
    """One line for an event; empty for those that say nothing new."""
    match event:
        case events.Submitted():
            return f"submitting {event.name} to {event.master}; record in {event.run_folder}"
        case events.DriverStarted():
            page = f", {event.web_url}" if event.web_url else ""
            return f"driver started: Spark {event.spark_version}, application {event.application_id}{page}"
        case events.TensorBoardStarted():
            where = f" (on {event.host} only)" if "//127." in event.url and not event.host.startswith("127.") and event.host else ""
            return f"TensorBoard: {event.url}{where}"
        case events.TensorBoardKept():
            return f"the nodes are done; TensorBoard stays at {event.url} for {event.seconds:g} s, or until Ctrl-C"
        case events.FeedProgress() | events.FeedFinished():
            return _feed_line(event)
        case events.InferProgress() | events.InferFinished():
            return _infer_line(event)
        case events.StreamProgress():
            return f"stream: batch {event.batch} with {event.rows} rows in {event.seconds:.1f} s; {event.rows_total} rows so far"
        case events.StreamFinished():
            return f"stream: ended after {event.batches} batches with {event.rows} rows, because {event.reason}"
        case events.Restarting():
            after = f" after epoch {event.first_epoch}" if event.first_epoch else ""
            return f"restart {event.number} of {event.max_restarts} in {event.delay_s:g} s{after}: {event.error}"
        case events.ShutdownStarted():
            return f"shutting down: {event.reason}"
        case events.ShutdownFinished():
            return f"cluster is down after {event.seconds:.1f} s"
        case _:
            return _node_line(event)


def _node_line(event: events.Event) -> str:
    match event:
        case events.ReservationServerStarted():
            return f"waiting for {len(event.expected)} nodes: {', '.join(event.expected)}"
        case events.NodeRegistered():
            gpus = f" with GPU {','.join(event.gpus)}" if event.gpus else ""
            executor = f"(executor {event.executor_id})"
            return f"{event.node} registered from {event.host} {executor}{gpus}, {event.registered} of {event.expected}"
        case events.ReservationWaiting():
            reason = f": {event.reason}" if event.reason else ""
            return f"still waiting for {', '.join(event.missing)} after {event.waited_s:.0f} of {event.timeout_s:.0f} s{reason}"
        case events.ClusterReady():
            return f"cluster ready after {event.seconds:.1f} s: {len(event.addresses)} nodes"
        case events.NodeFinished():
            return f"{event.node} finished after {event.seconds:.1f} s"
        case events.NodeFailed():
            return f"{event.node} on {event.host} {'was lost' if event.lost else 'failed'}: {event.error}"
        case _:
            return ""


def _infer_line(event: events.InferProgress | events.InferFinished) -> str:
    bad = f", {event.rows_bad} of them bad" if event.rows_bad else ""
    if isinstance(event, events.InferProgress):
        done = f"{event.partitions_done} of {event.partitions} partitions"
        return f"answered {event.rows} rows{bad}, {done}, {event.rows_per_s:.0f} rows/s"
    return f"answered {event.rows} rows{bad} of {event.partitions} partitions in {event.seconds:.1f} s: {event.output}"


def _feed_line(event: events.FeedProgress | events.FeedFinished) -> str:
    epoch = f"epoch {event.epoch + 1} of {event.epochs}"
    nodes = ", ".join(f"{name} {rows}" for name, rows in event.rows_per_node.items())
    if isinstance(event, events.FeedProgress):
        done = f"{event.partitions_done} of {event.partitions} partitions"
        doing = "replaying" if event.cached else "feeding"
        return f"{doing} {epoch}: {event.rows} rows, {done}, {event.rows_per_s:.0f} rows/s ({nodes})"
    discarded = f", {event.partitions_discarded} partitions not wanted" if event.partitions_discarded else ""
    fed = "replayed" if event.cached else "fed"
    return f"{fed} {epoch}: {event.rows} rows of {event.partitions} partitions in {event.seconds:.1f} s{discarded} ({nodes})"
