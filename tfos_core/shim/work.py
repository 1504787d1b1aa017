"""What the steps of a job have to work with: its plan, the engine, the session, and where progress is noted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfos_core import events, parallel
from tfos_core.cancellation import Cancellation
from tfos_core.jobplan import JobPlan
from tfos_core.options import ClusterOptions
from tfos_core.settings import STOP_TIMEOUT_S
from tfos_core.shim.result import Progress

__all__ = ("STOP_TIMEOUT_S", "Engine", "Work")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a job needs of Spark and of the cluster engine; tests bring their own.

    Attributes:
        start_spark: gives a SparkSession for a plan.
        run_cluster: `tfos_core.cluster.run`.
        run_parallel: `tfos_core.parallel.run`.
        exit_process: `os._exit`, for an end that can not wait for any thread.
    """

    start_spark: Callable[[JobPlan], Any]
    run_cluster: Callable[..., Any]
    run_parallel: Callable[..., Any] = parallel.run
    exit_process: Callable[[int], Any] = os._exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job whose Spark application runs; `options` are those of its clusters."""

    plan: JobPlan
    engine: Engine
    spark: Any
    options: ClusterOptions
    progress: Progress

    @property
    def cancellation(self) -> Cancellation:
        """Set when the job is told to stop."""
        return self.options.cancellation

    def emit(self, event: events.Event) -> None:
        """Tell the run record and the follower."""
        self.options.on_event(event)
