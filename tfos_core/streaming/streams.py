"""The streams of one cluster: started by `train`, awaited by `shutdown`, ended by whoever asks the cluster to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfos_core.errors import TfosError
from tfos_core.events import EventSink
from tfos_core.streaming.feed import StreamFeed
from tfos_core.streaming.sources import DStreamSource, source_of

__all__ = ("NOT_A_STREAM", "STREAM_ENDED", "Streams")

#: What those who asked for a stop are told, as `op` of a message.
STREAM_ENDED = "stream.ended"
NOT_A_STREAM = "stream.none"


class Streams:
    """Thread-safe.

    Args:
        emit: gets the events of all streams.
        tell_nodes: sends a message to every node that is fed; must not wait.
        tell_stoppers: sends a message to those who asked the cluster to stop; must not wait.
    """

    def __init__(
        self,
        emit: EventSink,
        *,
        tell_nodes: Callable[[Mapping[str, Any]], None],
        tell_stoppers: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._emit = emit
        self._tell_nodes = tell_nodes
        self._tell_stoppers = tell_stoppers
        self._changed = threading.Condition()
        self._feeds: list[StreamFeed] = []
        self._stopping = ""

    def start(self, data: Any, feed: Callable[[Any], Any], *, interval: float, checkpoint: str | None) -> StreamFeed:
        """Start to feed a stream.

        Raises:
            ConfigError: it can not be started.
        """
        return self._add(StreamFeed(source_of(data, interval=interval, checkpoint=checkpoint), feed, **self._sinks()))

    def adopt(self, context: Any) -> None:
        """Wait for a StreamingContext too, whose streams the caller feeds in functions of its own."""
        with self._changed:
            if self._feeds:
                return
        self._add(StreamFeed(DStreamSource(context), lambda data: data, **self._sinks()))

    def request_stop(self, reason: str) -> None:
        """End all streams; from any thread, never waits."""
        with self._changed:
            self._stopping = self._stopping or reason
            feeds = list(self._feeds)
            self._changed.notify_all()
        for feed in feeds:
            feed.request_stop(reason)

    def on_stop_message(self) -> None:
        """Somebody with the right to do so asked the cluster to stop."""
        with self._changed:
            is_none = not self._feeds
        if is_none:
            self._tell_stoppers({"op": NOT_A_STREAM})
            return
        self._tell_nodes({"op": "feed.stop_requested"})
        self.request_stop("the cluster was asked to stop")
        self._tell_if_ended()

    def await_end(self, is_over: Callable[[], bool]) -> TfosError | None:
        """Wait until all streams have ended, or `is_over`; what ended one of them when nobody asked it to.

        Args:
            is_over: looked at again at every `request_stop`.
        """
        with self._changed:
            self._changed.wait_for(lambda: all(feed.has_ended for feed in self._feeds) or is_over())
            return next((feed.error for feed in self._feeds if feed.error is not None), None)

    def close(self, reason: str, timeout: float) -> None:
        """End all streams and wait for them, at most `timeout` seconds altogether."""
        self.request_stop(reason)
        deadline = time.monotonic() + timeout
        with self._changed:
            feeds = list(self._feeds)
        for feed in feeds:
            feed.wait(max(0.0, deadline - time.monotonic()))

    def _add(self, feed: StreamFeed) -> StreamFeed:
        feed.start()
        with self._changed:
            self._feeds.append(feed)
            reason = self._stopping
        if reason:
            feed.request_stop(reason)
        return feed

    def _sinks(self) -> dict[str, Any]:
        return {"emit": self._emit, "on_end": lambda feed: self._on_end()}

    def _on_end(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._tell_if_ended()

    def _tell_if_ended(self) -> None:
        with self._changed:
            feeds = list(self._feeds)
        if all(feed.has_ended for feed in feeds):
            batches, rows = sum(feed.batches for feed in feeds), sum(feed.rows for feed in feeds)
            self._tell_stoppers({"op": STREAM_ENDED, "batches": batches, "rows": rows})
