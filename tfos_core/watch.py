"""Waits a moment after bad news, so that the failure that explains the others is the one that is told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfos_core.errors import TfosError
from tfos_core.node_table import NodeFailure, NodeTable

__all__ = ("FailureWatch",)

#: A node that only lost its peer often says so before the news of the peer arrives, in seconds.
_COLLATERAL_WAIT_S = 1.5
#: Spark's word that the node job failed is the vaguest of all, in seconds.
_JOB_WAIT_S = 3.0
#: The cluster manager may have to be asked why an executor is gone, in seconds; else it is told at once.
_SETTLE_S = 10.0


class FailureWatch:
    """Calls `on_failure` once, in a thread of its own."""

    def __init__(self, table: NodeTable, on_failure: Callable[[NodeFailure | TfosError], None]) -> None:
        self._table = table
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        self._noticed = threading.Event()
        self._decided = False
        self._told = threading.Event()
        self._closed = False

    def noticed(self, failure: NodeFailure) -> None:
        """A node failed."""
        self._noticed.set()
        self._later(_COLLATERAL_WAIT_S if failure.outcome.collateral else 0.0, None)

    def job_failed(self, error: TfosError) -> None:
        """The job of the node tasks failed."""
        self._later(_JOB_WAIT_S, error)

    def settle(self, timeout: float = _SETTLE_S) -> None:
        """Give the news of a node's failure a moment to arrive, be decided on and be told."""
        if self._noticed.wait(_COLLATERAL_WAIT_S / 3):
            self._told.wait(timeout)

    def close(self) -> None:
        """Decide nothing any more."""
        with self._lock:
            self._closed = True
            timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()

    def _later(self, seconds: float, error: TfosError | None) -> None:
        timer = threading.Timer(seconds, self._decide, args=(error,))
        timer.daemon = True
        with self._lock:
            if self._closed or self._decided:
                return
            self._timers.append(timer)
        timer.start()

    def _decide(self, error: TfosError | None) -> None:
        with self._lock:
            if self._closed or self._decided:
                return
            cause = self._table.first_failure() or error
            if cause is None:
                return
            self._decided = True
        try:
            self._on_failure(cause)
        finally:
            # Only now: who settles looks at what `on_failure` did.
            self._told.set()
