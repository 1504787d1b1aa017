"""What is known of a job while it runs, and the result that becomes of it."""

from __future__ import annotations

import logging
import socket
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import NodeError, TfosError
from tfos_core.exit_codes import ExitCode, exit_code_of
from tfos_core.parallel import InstanceResult
from tfos_core.restarts import Restart
from tfos_core.shim.errors import DriverLostError, hint_of, sentence_of
from tfos_core.shim.scratch import keep_export

__all__ = ("Counts", "Progress")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows and batches, in all and by node."""

    rows_fed: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    left_over: Mapping[str, int] = field(default_factory=dict)


class Progress:
    """What is known so far; written from several threads, read when the result is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first_failure: events.NodeFailed | None = None
        self._rows_fed = 0
        self._rows_per_node: dict[str, int] = {}
        self._rows_of_epochs: dict[str, int] = {}
        self._steps_per_node: dict[str, int] = {}
        self._left_over: dict[str, int] = {}
        self._exports: tuple[str, ...] = ()
        self._restarts: list[Restart] = []
        # What earlier attempts of a job that was started again did.
        self._before = Counts()
        self._timings: dict[str, float] = {}
        self._instances: tuple[dict[str, Any], ...] = ()
        self._inference: dict[str, Any] | None = None

    def note(self, event: events.Event) -> None:
        """Keep what an event says that the result repeats."""
        with self._lock:
            if isinstance(event, events.NodeFailed):
                if event.first and self._first_failure is None:
                    self._first_failure = event
            elif isinstance(event, (events.FeedProgress, events.FeedFinished)):
                # The epochs that are over and the running one; the report of a call that ends well says the same.
                self._rows_per_node = _sum(self._rows_of_epochs, event.rows_per_node)
                self._rows_fed = sum(self._rows_per_node.values())
                if isinstance(event, events.FeedFinished):
                    self._rows_of_epochs = self._rows_per_node

    def restarted(self, restart: Restart) -> None:
        """The job starts again: what comes now is added to what was, and the failure is not that of the job."""
        with self._lock:
            self._restarts.append(restart)
            self._before = self._counts()
            self._rows_fed, self._rows_per_node, self._rows_of_epochs = 0, {}, {}
            self._steps_per_node, self._left_over = {}, {}
            self._first_failure = None

    def mark(self, phase: str, begun: float) -> None:
        """A phase that began at that `time.monotonic()` is over."""
        with self._lock:
            self._timings[phase] = round(time.monotonic() - begun, 3)

    def collect(self, report: ClusterReport) -> None:
        """Take over what a cluster counted."""
        with self._lock:
            self._exports += tuple(path for path in report.exports if path not in self._exports)
            self._timings.update({name: round(value, 3) for name, value in report.timings.items()})
            self._steps_per_node = dict(report.steps_per_node)
            self._left_over = dict(report.left_over)
            if report.rows_per_node:
                self._rows_per_node = dict(report.rows_per_node)
                self._rows_fed = sum(report.rows_per_node.values())

    def collect_instances(self, results: Sequence[InstanceResult]) -> None:
        """Take over how the instances of a parallel job ended."""
        with self._lock:
            self._instances = tuple(result.to_dict() for result in results)
            self._exports = tuple(path for result in results for path in result.exports)

    def answered(self, counts: Mapping[str, Any]) -> None:
        """Rows that came in and went out of a job that answers rows, and where they went."""
        with self._lock:
            self._inference = dict(counts)

    def result(self, error: BaseException | None, *, run_folder: str, started: float) -> events.Result:
        """The result of a job that ended with `error`, or well; exports are moved out of Spark's scratch."""
        code = ExitCode.SUCCESS if error is None else exit_code_of(error)
        counts = self._counts()
        status = {ExitCode.SUCCESS: "success", ExitCode.INTERRUPTED: "interrupted"}.get(code, "failed")
        return events.Result(
            status=status,
            exit_code=code,
            error="" if error is None else sentence_of(error),
            hint=hint_of(error, code),
            first_failure=self._failure(error) if status == "failed" else None,
            timings=self._timings | {"total_s": round(time.time() - started, 3)},
            rows_fed=counts.rows_fed,
            rows_per_node=counts.rows,
            steps_per_node=counts.steps,
            rows_left_over=counts.left_over,
            restarts=tuple(restart.to_dict() for restart in self._restarts),
            exports=_kept(self._exports, Path(run_folder)),
            instances=self._instances,
            inference=self._inference,
        )

    def _counts(self) -> Counts:
        before = self._before
        return Counts(
            rows_fed=before.rows_fed + self._rows_fed,
            rows=_sum(before.rows, self._rows_per_node),
            steps=_sum(before.steps, self._steps_per_node),
            left_over=_sum(before.left_over, self._left_over),
        )

    def _failure(self, error: BaseException | None) -> dict[str, Any] | None:
        """The node that failed first, or the driver when the failure happened there."""
        first = self._first_failure
        if isinstance(error, DriverLostError) and (first is None or first.lost):
            # Executors go with the driver, and their nodes may say so first.
            text = sentence_of(error)
            return asdict(events.NodeFailed(node="driver", host=socket.gethostname(), executor_id=-1, error=text, lost=True))
        if first is not None:
            return asdict(first)
        if error is None or (isinstance(error, TfosError) and not getattr(error, "remote_traceback", "")):
            return None
        text = getattr(error, "remote_traceback", "") or "".join(traceback.format_exception(error))
        node, host, executor_id = "driver", socket.gethostname(), -1
        if isinstance(error, NodeError):
            node, host, executor_id = error.node, error.host, error.executor_id
        return asdict(events.NodeFailed(node=node, host=host, executor_id=executor_id, error=sentence_of(error), traceback=text))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *(name for name in other if name not in one))}


def _kept(exports: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    kept = []
    for path in exports:
        try:
            kept.append(keep_export(folder, path))
        except OSError:
            logger.warning("%s could not be moved out of Spark's scratch", path, exc_info=True)
            kept.append(path)
    return tuple(kept)
