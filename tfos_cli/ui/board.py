"""The live view on a terminal, drawn with rich: one board that is replaced in place, and the user's output above it."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tfos_cli.ui import outcome
from tfos_cli.ui.console import Console, Verbosity
from tfos_cli.ui.progress import is_worth_showing, plain_line, printable
from tfos_cli.ui.run_view import FeedView, InferView, NodePhase, NodeView, Phase, RunView
from tfos_core import events

__all__ = ("Board", "draw")

_COLOURS = {
    NodePhase.MISSING: "yellow",
    NodePhase.REGISTERED: "cyan",
    NodePhase.RUNNING: "green",
    NodePhase.FINISHED: "dim",
    NodePhase.FAILED: "bold red",
    NodePhase.LOST: "bold red",
}
#: Nodes beyond these are counted, not drawn: the board has to fit on a screen.
_MOST_NODES = 20
#: A terminal shows no more; drawing for every event of a large cluster would cost more than the feed itself.
_REDRAW_EVERY_S = 0.1


class Board:
    """Draws on stderr. Lines for stdout go there when it is a file or a pipe, and above the board when it is the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console.rich(), auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._drawn = 0.0

    def start(self, view: RunView) -> None:
        """Draw the empty board."""
        self._live.start()
        self._draw(view, time.time())

    def on_event(self, line: str, ts: float, event: events.Event | None, view: RunView) -> None:
        """Redraw, and keep warnings and failures on the screen."""
        if isinstance(event, events.Warned):
            self._live.console.print(Text.assemble(("warning: ", "yellow"), event.message))
            if event.hint:
                self._live.console.print(Text.assemble(("hint: ", "cyan"), event.hint))
        elif isinstance(event, events.Restarting):
            self._live.console.print(Text(plain_line(event), style="yellow"))
        if time.monotonic() - self._drawn >= _REDRAW_EVERY_S or not isinstance(event, (events.FeedProgress, events.InferProgress)):
            self._draw(view, ts)

    def on_driver_line(self, stream: str, line: str) -> None:
        """The user's prints, and Spark's talk when asked for."""
        if stream == "stdout":
            self._print(line)
        elif self._console.verbosity >= Verbosity.VERBOSE:
            self._live.console.print(Text(line, style="dim"))

    def on_node_lines(self, node: str, lines: list[str], view: RunView) -> None:
        """What the first node prints, or every node with -v, above the board."""
        everything = self._console.verbosity >= Verbosity.VERBOSE
        for line in lines:
            if everything or (node == view.first_node and is_worth_showing(line)):
                self._print(f"{node} | {printable(line)}")

    def say(self, text: str) -> None:
        """Above the board."""
        self._live.console.print(Text(text))

    def tick(self, view: RunView, now: float) -> None:
        """Clocks move on."""
        self._draw(view, now)

    def finish(self, view: RunView) -> None:
        """Take the board away and print the result."""
        self._live.stop()
        outcome.show(self._console, view)

    def _print(self, line: str) -> None:
        if self._console.stdout.isatty():
            self._live.console.print(Text(line))
        else:
            self._console.result(line)

    def _draw(self, view: RunView, now: float) -> None:
        self._drawn = time.monotonic()
        self._live.update(draw(view, now), refresh=True)


def draw(view: RunView, now: float) -> RenderableType:
    """The board for a state; pure but for the spinner's own clock."""
    parts: list[RenderableType] = [_headline(view, now)]
    if view.nodes:
        parts.append(_nodes(view))
    if view.missing and view.reserving_since:
        parts.append(_waiting(view, now))
    if view.feed is not None:
        parts.append(_feed(view.feed))
    if view.stream is not None:
        end = ", ended" if view.stream.has_ended else ""
        parts.append(Text(f"stream: {view.stream.batches:,} batches with {view.stream.rows:,} rows{end}"))
    if view.inference is not None:
        parts.append(_inference(view.inference))
    return Group(*parts)


def _headline(view: RunView, now: float) -> RenderableType:
    elapsed = outcome.duration(max(0.0, now - view.started)) if view.started else ""
    text = Text.assemble((str(view.phase), "bold"), f"  {view.name} on {view.master}  {elapsed}")
    if view.application_id:
        text.append(f"  {view.application_id}", "dim")
    if view.restarts:
        text.append(f"  restart {view.restarts[-1].number} of {view.restarts[-1].max_restarts}", "yellow")
    for address in (view.web_url, view.tensorboard_url):
        if address:
            text.append(f"  {address}", "blue")
    if view.phase is Phase.STOPPING and view.shutdown_reason:
        text.append(f"  ({view.shutdown_reason})")
    return Spinner("dots", text=text)


def _nodes(view: RunView) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    has_gpus = any(node.gpus for node in view.nodes)
    for title in ("node", "state", "host", "executor", *(["GPU"] if has_gpus else [])):
        table.add_column(title, header_style="dim")
    table.add_column("rows", justify="right", header_style="dim")
    for node in _most_interesting(view.nodes):
        executor = "" if node.executor_id is None else str(node.executor_id)
        state = Text(str(node.phase), style=_COLOURS[node.phase])
        gpus = [",".join(node.gpus)] if has_gpus else []
        table.add_row(node.name, state, node.host, executor, *gpus, f"{node.rows:,}" if node.rows else "")
    if len(view.nodes) > _MOST_NODES:
        table.add_row(f"and {len(view.nodes) - _MOST_NODES} more")
    return table


def _most_interesting(nodes: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
    """The nodes to draw when not all of them fit: first those that something is wrong with."""
    if len(nodes) <= _MOST_NODES:
        return nodes
    order = [NodePhase.FAILED, NodePhase.LOST, NodePhase.MISSING]
    ranked = sorted(nodes, key=lambda node: order.index(node.phase) if node.phase in order else len(order))
    return tuple(ranked[:_MOST_NODES])


def _waiting(view: RunView, now: float) -> Text:
    waited = max(0.0, now - view.reserving_since)
    text = Text(f"{view.registered} of {len(view.nodes)} registered, missing {', '.join(view.missing[:_MOST_NODES])}", "yellow")
    text.append(f" for {waited:.0f} of {view.reservation_timeout_s:.0f} s")
    if view.waiting_reason:
        text.append(f"\n{view.waiting_reason}", "yellow")
    return text


def _inference(inference: InferView) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    bad = [Text(f"{inference.rows_bad:,} bad", "yellow")] if inference.rows_bad else []
    table.add_row(
        ProgressBar(total=max(1, inference.partitions), completed=inference.partitions_done, width=30),
        f"{inference.partitions_done} of {inference.partitions} partitions",
        f"{inference.rows:,} rows",
        f"{inference.rows_per_s:,.0f} rows/s",
        *bad,
    )
    return table


def _feed(feed: FeedView) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(
        f"epoch {feed.epoch} of {feed.epochs}",
        ProgressBar(total=max(1, feed.partitions), completed=feed.partitions_done, width=30),
        f"{feed.partitions_done} of {feed.partitions} partitions",
        f"{feed.rows:,} rows",
        f"{feed.rows_per_s:,.0f} rows/s",
    )
    return table
