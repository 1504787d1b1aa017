"""How a run ended, found from outside when its driver did not say it. Pure."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any

from tfos_cli.exit_codes import exit_code_of
from tfos_cli.submit.errors import SubmitError
from tfos_cli.submit.process import meaningful
from tfos_cli.ui.run_view import RunView
from tfos_core import events
from tfos_core.errors import InterruptedRunError, TfosError
from tfos_core.shim.errors import DriverLostError
from tfos_core.shim.status import RunStatus

__all__ = ("Evidence", "diagnose", "result_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a follower knows when everything of a run has ended.

    `error` is what the follower itself found, `stop_reason` is empty unless somebody stopped the run, `exit_code` is that of
    spark-submit (negative for a signal, None when it never ended by itself) and `last_lines` are the end of its output.
    """

    status: RunStatus
    driver_log: str
    error: TfosError | None
    stop_reason: str
    driver_started: bool
    exit_code: int | None
    last_lines: tuple[str, ...]
    view: RunView


def diagnose(evidence: Evidence) -> events.Result:
    """The result event that the driver did not write."""
    error = evidence.error or _error_of(evidence)
    lines = () if isinstance(error, InterruptedRunError) else meaningful(evidence.last_lines)
    failure = evidence.view.first_failure
    first = asdict(failure) if failure is not None else _driver_failure(error, lines) if lines else None
    return events.Result(
        status="interrupted" if isinstance(error, InterruptedRunError) else "failed",
        exit_code=int(exit_code_of(error)),
        error=error.message,
        hint=error.hint or "",
        first_failure=first,
        timings={"total_s": round(time.time() - evidence.status.started, 3)},
        rows_fed=evidence.view.rows_fed,
    )


def result_of(status: RunStatus) -> events.Result:
    """The result event of a finished record, for a follower that missed it."""
    return events.Result(
        status=status.status,
        exit_code=status.exit_code or 0,
        error=status.error,
        hint=status.hint,
        first_failure=status.first_failure,
        timings=status.timings,
        rows_fed=status.rows_fed,
        rows_per_node=status.rows_per_node,
        exports=status.exports,
    )


def _error_of(evidence: Evidence) -> TfosError:
    how = _how(evidence.exit_code)
    if evidence.stop_reason:
        return InterruptedRunError(f"the run was stopped by {evidence.stop_reason}")
    if not evidence.driver_started:
        return SubmitError(
            f"spark-submit ended ({how}) before it had started the application on {evidence.status.master}",
            f"Read the end of {evidence.driver_log}.",
        )
    return DriverLostError(
        f"the driver ended ({how}) without saying how the job went",
        f"It was probably killed. Read the end of {evidence.driver_log}, and submit the run again.",
    )


def _driver_failure(error: TfosError, lines: tuple[str, ...]) -> dict[str, Any]:
    failure = events.NodeFailed(
        node="driver", host=socket.gethostname(), executor_id=-1, error=error.message, last_lines=lines, lost=True
    )
    return asdict(failure)


def _how(code: int | None) -> str:
    if code is None:
        return "killed"
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
