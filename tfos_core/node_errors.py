"""A node's failure as the exception and as the event that tell of it."""

from __future__ import annotations

from tfos_core import events
from tfos_core.errors import NodeError, NodeFailedError, NodeLostError
from tfos_core.node_table import NodeFailure

__all__ = ("failed_event", "node_error", "node_where")


def node_where(failure: NodeFailure) -> str:
    """A failed node, its executor and its host."""
    return f"{failure.node} (executor {failure.executor_id} on {failure.host or 'an unknown host'})"


def node_error(failure: NodeFailure, run_id: str = "") -> NodeError:
    """The exception that tells of a failed node; with a run id the hint is the command that shows its log."""
    outcome = failure.outcome
    cls = NodeLostError if outcome.lost else NodeFailedError
    look = f"tfos logs {run_id} --node {failure.node}" if run_id else f"the output of {failure.node} in its executor's folder"
    hint = "Start the job again; nothing is wrong with the program." if outcome.lost else f"See {look}."
    return cls(
        f"{node_where(failure)} failed: {outcome.error}",
        hint,
        failure.node,
        failure.host,
        failure.executor_id,
        outcome.exit_code,
        outcome.signal,
        outcome.traceback,
        failure.last_lines,
    )


def failed_event(failure: NodeFailure, *, first: bool) -> events.NodeFailed:
    """The event that tells of a failed node; `first` marks the failure that explains the others."""
    outcome = failure.outcome
    return events.NodeFailed(
        node=failure.node,
        host=failure.host,
        executor_id=failure.executor_id,
        error=outcome.error,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        traceback=outcome.traceback,
        last_lines=failure.last_lines,
        lost=outcome.lost,
        first=first,
    )
