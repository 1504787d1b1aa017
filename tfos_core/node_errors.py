"""A node's failure as the exception and as the event that tell of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tfos_core import events
from tfos_core.errors import NodeError, NodeFailedError, NodeLostError, TfosError
from tfos_core.executor_loss import is_memory, loss_reason
from tfos_core.node_table import NodeFailure

__all__ = ("explained", "failed_event", "node_error", "node_where")

_AGAIN = "Start the job again; nothing is wrong with the program."
_MORE_MEMORY = "Raise spark.executor_memory_overhead: TensorFlow and Python live outside the heap of the JVM."


def node_where(failure: NodeFailure) -> str:
    """A failed node, its executor and its host."""
    return f"{failure.node} (executor {failure.executor_id} on {failure.host or 'an unknown host'})"


def node_error(failure: NodeFailure, run_id: str = "") -> NodeError:
    """The exception that tells of a failed node; with a run id the hint is the command that shows its log."""
    outcome = failure.outcome
    cls = NodeLostError if outcome.lost else NodeFailedError
    look = f"tfos logs {run_id} --node {failure.node}" if run_id else f"the output of {failure.node} in its executor's folder"
    hint = (_MORE_MEMORY if is_memory(outcome.error) else _AGAIN) if outcome.lost else f"See {look}."
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


def explained(sc: Any, on_failure: Callable[[NodeFailure | TfosError], None]) -> Callable[[NodeFailure | TfosError], None]:
    """The same listener, which gets of a node that was lost why its executor is gone, where the cluster manager says it."""

    def tell(cause: NodeFailure | TfosError) -> None:
        if isinstance(cause, NodeFailure) and cause.outcome.lost and (reason := loss_reason(sc, cause.host)):
            cause = replace(cause, outcome=replace(cause.outcome, error=f"its executor is gone: {reason}"))
        on_failure(cause)

    return tell


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
