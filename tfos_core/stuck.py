"""Deadlines that pass: the nodes are asked where their processes are, so that the error can say it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tfos_core import stacks
from tfos_core.errors import ChannelClosedError, FeedTimeoutError, NodeTimeoutError, TfosError
from tfos_core.events import EventSink
from tfos_core.node_errors import failed_event, node_where
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.outcome import Outcome

__all__ = ("StuckNodes",)

#: For the answers of all nodes: what a supervisor takes, and the way there and back, in seconds.
_ANSWERS_S = stacks.ANSWER_S + 1.0

Send = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    place: str = ""
    stack: str = ""
    last_lines: tuple[str, ...] = ()

    def sentence(self, said: str) -> str:
        """What happened, and where the program is."""
        return f"{said}; it is in {self.place}" if self.place else f"{said}; its process does not say where it is"


class StuckNodes:
    """One per cluster; `send` is set when its server runs.

    All nodes are asked, because one may wait for another: every stack is in the log of its node, and the errors have those of the
    nodes that are to blame.
    """

    def __init__(self, table: NodeTable, emit: EventSink, run_id: str = "") -> None:
        self._table = table
        self._emit = emit
        self._run_id = run_id
        self._changed = threading.Condition()
        self._answers: dict[str, _Answer] = {}
        self.send: Send | None = None

    def answered(self, node: str, message: Mapping[str, Any]) -> None:
        """A node has said where its process is; in the server's thread."""
        answer = _Answer(place=message["place"], stack=message["stack"], last_lines=tuple(message["last_lines"]))
        with self._changed:
            self._answers[node] = answer
            self._changed.notify_all()

    def explain(self, error: TfosError) -> TfosError:
        """The same error, when it is that of a feed that was not taken with the node's place; any other one as it is.

        Waits for the answers: not for the server's thread.
        """
        if not isinstance(error, FeedTimeoutError) or not error.node:
            return error
        said = error.message.removeprefix(f"node {error.node} ")
        answer = self._ask([error.node], f"it {said}").get(error.node, _Answer())
        failure = self._failed(error.node, answer.sentence(said), answer)
        if failure is None:
            return error
        text = f"{node_where(failure)} {failure.outcome.error}"
        explained = FeedTimeoutError(text, error.hint, error.node, error.partition)
        _note_stack(explained, error.node, answer)
        return explained

    def explain_later(self, error: TfosError, then: Callable[[TfosError], None]) -> None:
        """Call `then` with what `explain` gives; from any thread, does not wait."""
        if isinstance(error, FeedTimeoutError):
            threading.Thread(target=lambda: then(self.explain(error)), name="tfos-stuck-node", daemon=True).start()
        else:
            then(error)

    def not_ended(self, nodes: Collection[str], within: str) -> NodeTimeoutError:
        """The error of nodes whose functions have not returned `within` some time, as "60 s of shutdown"."""
        said = f"did not end within {within}"
        first, *others = nodes
        answer = self._ask([first], f"it {said}").get(first, _Answer())
        failure = self._failed(first, answer.sentence(said), answer)
        where = first if failure is None else node_where(failure)
        text = f"{where} {answer.sentence(said)}" + (f" (nor did {', '.join(others)})" if others else "")
        look = f" See where all nodes were: tfos logs {self._run_id}" if self._run_id else ""
        host, executor = ("", -1) if failure is None else (failure.host, failure.executor_id)
        error = NodeTimeoutError(
            text,
            f"Does the function wait for something? Raise shutdown_timeout when it may take longer.{look}",
            first,
            host,
            executor,
            None,
            None,
            answer.stack,
            answer.last_lines,
        )
        _note_stack(error, first, answer)
        return error

    def _ask(self, nodes: Collection[str], why: str) -> dict[str, _Answer]:
        """The answers of these nodes, as far as they came in time."""
        if self.send is None:
            return {}
        with self._changed:
            self._answers.clear()
        for name in self._table.connected():
            with contextlib.suppress(ChannelClosedError):
                self.send(name, {"op": "node.ask_stacks", "why": why if name in nodes else f"{', '.join(nodes)}: {why}"})
        awaited = set(nodes) & set(self._table.connected())
        with self._changed:
            self._changed.wait_for(lambda: awaited <= set(self._answers), _ANSWERS_S)
            return dict(self._answers)

    def _failed(self, name: str, error: str, answer: _Answer) -> NodeFailure | None:
        """Note it as the failure of the node, and tell; None when the node has ended meanwhile."""
        failure = self._table.ended(name, Outcome(ok=False, error=error, traceback=answer.stack), answer.last_lines)
        if failure is not None:
            self._emit(failed_event(failure, first=True))
        return failure


def _note_stack(error: TfosError, node: str, answer: _Answer) -> None:
    """Python shows notes with the traceback of an exception, for programs that have no command line to show the stack."""
    if answer.stack:
        error.add_note(f"{node}: {answer.stack}")
