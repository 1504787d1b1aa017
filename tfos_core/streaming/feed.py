"""One stream that is fed to a cluster: counts its batches, and ends it without losing the batch in flight."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tfos_core.errors import FeedError, TfosError
from tfos_core.events import EventSink, StreamFinished, StreamProgress
from tfos_core.spark_errors import reason_of
from tfos_core.streaming.sources import StreamSource

__all__ = ("StreamFeed", "StreamStoppedError")

logger = logging.getLogger(__name__)

#: Spark ends a stream within this after it was told, in seconds.
_STOP_S = 60.0


class StreamStoppedError(TfosError):
    """A batch came after the stream was told to stop: it was not fed, and counts as not read."""


class _Fed(Protocol):
    @property
    def rows(self) -> int: ...


class StreamFeed:
    """Feeds a stream until it ends, it is stopped, or every node has had enough; what `TFCluster.train` returns for a stream.

    Args:
        feed: feeds one batch and returns how many rows that were; raises when the cluster failed.
        on_end: called once, with this feed, when nothing more will be fed.
    """

    def __init__(
        self,
        source: StreamSource,
        feed: Callable[[Any], _Fed],
        *,
        emit: EventSink,
        on_end: Callable[[StreamFeed], None] = lambda feed: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._feed = feed
        self._emit = emit
        self._on_end = on_end
        self._clock = clock
        self._changed = threading.Condition()
        self._busy = False
        self._stopping = ""
        self._source_ended = False
        self._source_error: BaseException | None = None
        self._ended = threading.Event()
        self._batches = 0
        self._rows = 0
        self._failed = False

    def start(self) -> None:
        """Begin to feed; returns at once.

        Raises:
            ConfigError: the stream can not be started.
        """
        self._source.start(self._on_batch, self._on_source_end)
        threading.Thread(target=self._run, name="tfos-stream", daemon=True).start()

    @property
    def batches(self) -> int:
        """Batches with at least one row that were fed so far."""
        return self._batches

    @property
    def rows(self) -> int:
        """Rows that were fed so far."""
        return self._rows

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be fed."""
        return self._ended.is_set()

    @property
    def error(self) -> TfosError | None:
        """What ended the stream when nobody asked it to end; failures of the cluster are the cluster's."""
        if self._source_error is None or self._stopping or self._failed:
            return None
        return FeedError(f"the stream ended: {reason_of(self._source_error)}", "Read the driver's log.")

    def stop(self, reason: str = "the program asked for it", *, timeout: float | None = None) -> bool:
        """Feed what is in flight to its end, then end the stream; whether that came within `timeout` seconds."""
        self.request_stop(reason)
        return self.wait(timeout)

    def request_stop(self, reason: str) -> None:
        """Begin to stop, and return at once; the first reason counts."""
        with self._changed:
            self._stopping = self._stopping or reason
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it came within `timeout` seconds."""
        return self._ended.wait(timeout)

    # --- Spark's threads

    def _on_batch(self, data: Any) -> None:
        with self._changed:
            if self._stopping and not self._source.is_drained_by_stop:
                raise StreamStoppedError(f"the stream is being stopped: {self._stopping}")
            self._busy = True
        begun = self._clock()
        try:
            rows = self._feed(data).rows
        except BaseException:
            self._failed = True
            raise
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        if rows:
            self._batches += 1
            self._rows += rows
            seconds = round(self._clock() - begun, 3)
            self._emit(StreamProgress(batch=self._batches, rows=rows, rows_total=self._rows, seconds=seconds))

    def _on_source_end(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._source_ended:
                self._source_ended, self._source_error = True, error
            self._changed.notify_all()

    # --- its own thread

    def _run(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._source_ended)
            if not self._source.is_drained_by_stop:
                # What is in flight is bounded by feed_timeout, and ended by a failure of the cluster.
                self._changed.wait_for(lambda: self._source_ended or not self._busy)
        try:
            self._source.stop()
        except Exception:
            logger.warning("the stream did not stop cleanly", exc_info=True)
        with self._changed:
            if not self._changed.wait_for(lambda: self._source_ended and not self._busy, _STOP_S):
                logger.warning("the stream did not end within %g s after it was told to", _STOP_S)
        reason = self._stopping or (str(self.error) if self.error else "the source ended")
        self._emit(StreamFinished(batches=self._batches, rows=self._rows, reason=reason))
        self._ended.set()
        self._on_end(self)
