"""Follows the tasks of an inference on the driver: counts rows, tells progress, and ends the job when a task can not go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from tfos_core.errors import TfosError
from tfos_core.events import EventSink, InferProgress
from tfos_core.inference.report import Reporter, ReportSink, TaskReport

__all__ = ("TaskWatch",)

#: Between two events about progress, in seconds.
_EVERY_S = 0.5


class TaskWatch:
    """A context manager. Reports come from Spark's scheduler, which must not wait; a thread does what they ask for.

    Args:
        cancel: ends the running jobs, with the reason.
        partitions_of: the number of tasks of a stage, 0 while that is not known.
    """

    def __init__(self, emit: EventSink, cancel: Callable[[str], None], partitions_of: Callable[[int], int]) -> None:
        self._emit = emit
        self._cancel = cancel
        self._partitions_of = partitions_of
        self._changed = threading.Condition()
        self._reports: dict[int, TaskReport] = {}
        self._stage = -1
        self._error: TfosError | None = None
        self._closed = False
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="tfos-infer-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(10)

    def reporter(self, sc: Any) -> Reporter:
        """For the tasks."""
        return Reporter(sc.accumulator((), ReportSink(self.on_report)))

    def on_report(self, report: TaskReport) -> None:
        """A partition is done; one that Spark computes again counts once."""
        with self._changed:
            self._reports[report.partition] = report
            self._stage = report.stage
            if self._error is None:
                self._error = report.exception()
            self._changed.notify_all()

    @property
    def error(self) -> TfosError | None:
        """Why a task could not go on."""
        return self._error

    @property
    def rows(self) -> int:
        """Rows that came in."""
        with self._changed:
            return sum(report.rows for report in self._reports.values())

    @property
    def results(self) -> int:
        """Rows that the model answered."""
        with self._changed:
            return sum(report.results for report in self._reports.values())

    @property
    def bad(self) -> int:
        """Rows that it did not take."""
        with self._changed:
            return sum(report.bad for report in self._reports.values())

    @property
    def partitions(self) -> int:
        """Partitions that are done."""
        with self._changed:
            return len(self._reports)

    @property
    def seconds(self) -> float:
        """Since the watch began."""
        return time.monotonic() - self._started

    def _run(self) -> None:
        told, said = 0, False
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._is_news, told, said))
                reason = str(self._error) if self._must_say(said) else ""
                if not reason and self._closed:
                    return
                told = len(self._reports)
            if reason:
                said = True
                self._cancel(reason)
                continue
            self._tell()
            with self._changed:
                self._changed.wait_for(partial(self._is_urgent, said), _EVERY_S)

    def _is_news(self, told: int, said: bool) -> bool:
        return len(self._reports) > told or self._is_urgent(said)

    def _is_urgent(self, said: bool) -> bool:
        return self._closed or self._must_say(said)

    def _must_say(self, said: bool) -> bool:
        return self._error is not None and not said

    def _tell(self) -> None:
        rows, seconds = self.rows, self.seconds
        done = self.partitions
        self._emit(
            InferProgress(
                partitions_done=done,
                partitions=max(done, self._partitions_of(self._stage)),
                rows=rows,
                rows_bad=self.bad,
                rows_per_s=round(rows / seconds, 1) if seconds > 0 else 0.0,
            )
        )
