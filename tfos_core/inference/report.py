"""What tasks tell the driver when they end; travels in an accumulator, which Spark counts once per partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tfos_core.errors import TfosError

__all__ = ("ReportSink", "Reporter", "TaskReport")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One partition: `rows` came in, `results` went out, `bad` went to the bad rows; `error` ended it."""

    partition: int
    rows: int
    results: int
    bad: int = 0
    stage: int = -1
    load_s: float = 0.0
    error: tuple[str, str, str | None] | None = None

    def exception(self) -> TfosError | None:
        """The error as it was raised."""
        if self.error is None:
            return None
        # Feed tasks use reports too, and need nothing of models.
        from tfos_core.saved_model import errors

        kind, message, hint = self.error
        made = getattr(errors, kind, errors.ModelError)
        return made(message, hint) if issubclass(made, TfosError) else errors.ModelError(message, hint)

    @staticmethod
    def describe(error: TfosError) -> tuple[str, str, str | None]:
        """An error for `error`."""
        return type(error).__name__, error.message, error.hint


@dataclass(frozen=True)
class ReportSink:
    """Adds tuples of reports, as pyspark's AccumulatorParam; on the driver also hands each on.

    `on_report` stays on the driver. It is called while Spark's scheduler waits for it, so it must not wait for anything.
    """

    on_report: Callable[[TaskReport], None] | None = field(default=None, compare=False)

    def zero(self, value: tuple[TaskReport, ...]) -> tuple[TaskReport, ...]:
        """Nothing yet."""
        return ()

    def addInPlace(self, value: tuple[TaskReport, ...], more: tuple[TaskReport, ...]) -> tuple[TaskReport, ...]:  # noqa: N802
        """Both."""
        if self.on_report is None:
            return (*value, *more)
        for report in more:
            self.on_report(report)
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReportSink, ()


@dataclass(frozen=True, slots=True)
class Reporter:
    """Sends reports from a task; without an accumulator they go nowhere."""

    accumulator: Any = None

    def send(self, report: TaskReport) -> None:
        """Send one when the task ends."""
        if self.accumulator is not None:
            self.accumulator.add((report,))
