"""The two kinds of streams that Spark has, started and stopped in the same way. pyspark is imported by neither."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tfos_core.errors import ConfigError
from tfos_core.spark_errors import reason_of

__all__ = ("DStreamSource", "StreamSource", "StructuredSource", "is_stream", "source_of")

#: From the end of a batch to the note in its checkpoint that it is done, in seconds; Spark tells nobody but its own log.
_COMMIT_S = 10.0
_LOOK_S = 0.05

OnBatch = Callable[[Any], None]
OnEnd = Callable[[BaseException | None], None]


class StreamSource(Protocol):
    """A stream. `is_drained_by_stop`: `stop` itself hands out what has arrived; otherwise the batch in flight is the last."""

    is_drained_by_stop: bool

    def start(self, on_batch: OnBatch, on_end: OnEnd) -> None:
        """Begin: `on_batch(data)` is called for one batch after the other and raises when it was not taken; `on_end(error)` once,
        from another thread."""

    def stop(self) -> None:
        """End it; waits until it has ended. Again is no error."""


def is_stream(data: Any) -> bool:
    """Whether rows keep coming: a DStream, or a streaming DataFrame."""
    return getattr(data, "isStreaming", False) is True or any(
        kind.__module__.startswith("pyspark.streaming") for kind in type(data).__mro__
    )


def source_of(data: Any, *, interval: float, checkpoint: str | None) -> StreamSource:
    """The source for a stream that `is_stream`."""
    if getattr(data, "isStreaming", False) is True:
        return StructuredSource(data, interval=interval, checkpoint=checkpoint)
    return DStreamSource(data._ssc, data)


class StructuredSource:
    """A streaming DataFrame through `foreachBatch`.

    Args:
        interval: seconds from one batch to the next.
        checkpoint: folder or URL where Spark notes which rows were fed; None for one that is removed.
    """

    is_drained_by_stop = False

    def __init__(self, data: Any, *, interval: float, checkpoint: str | None) -> None:
        self._data = data
        self._interval = interval
        self._checkpoint = checkpoint
        self._query: Any = None
        self._last_batch = -1

    def start(self, on_batch: OnBatch, on_end: OnEnd) -> None:
        def feed(batch: Any, number: int) -> None:
            on_batch(batch)
            self._last_batch = number

        writer = self._data.writeStream.foreachBatch(feed).trigger(processingTime=f"{self._interval:g} seconds")
        if self._checkpoint is not None:
            writer = writer.option("checkpointLocation", self._checkpoint)
        try:
            self._query = writer.start()
        except Exception as exc:
            raise ConfigError(
                f"the stream can not be started: {reason_of(exc)}", "Check its source, its checkpoint folder and its query."
            ) from exc
        _Watcher(self._query.awaitTermination, on_end).start()

    def stop(self) -> None:
        if self._query is None:
            return
        # A query that is stopped between a batch and its commit would feed the batch again when it is resumed.
        deadline = time.monotonic() + _COMMIT_S
        while self._query.isActive and not self._is_committed() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self._query.stop()

    def _is_committed(self) -> bool:
        progress = self._query.lastProgress
        return self._last_batch < 0 or (progress is not None and int(progress["batchId"]) >= self._last_batch)


class DStreamSource:
    """A DStream, whose StreamingContext the caller starts.

    Args:
        data: None for a context whose streams the caller feeds in functions of its own.
    """

    is_drained_by_stop = True

    def __init__(self, context: Any, data: Any = None) -> None:
        self._context = context
        self._data = data

    def start(self, on_batch: OnBatch, on_end: OnEnd) -> None:
        if self._data is not None:
            # Spark counts the arguments of a plain function, and would give a method the time of the batch as well.
            self._data.foreachRDD(lambda batch: on_batch(batch))  # noqa: PLW0108
        _Watcher(self._context.awaitTermination, on_end).start()

    def stop(self) -> None:
        self._context.stop(stopSparkContext=False, stopGraceFully=True)


class _Watcher(threading.Thread):
    """Waits for the end of a stream where Spark offers nothing but waiting."""

    def __init__(self, wait: Callable[[], object], on_end: OnEnd) -> None:
        super().__init__(name="tfos-stream-end", daemon=True)
        self._wait = wait
        self._on_end = on_end

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._wait()
        except Exception as exc:  # noqa: BLE001 - what ended the stream is for others to judge
            error = exc
        self._on_end(error)
