"""The cluster that programs get: one that is fed streams too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfos_core import running
from tfos_core.errors import ChannelClosedError, ConfigError, TfosError
from tfos_core.streaming.sources import is_stream
from tfos_core.streaming.streams import Streams

if TYPE_CHECKING:
    from tfos_core.feed.coordinator import FeedReport
    from tfos_core.reservation import Server
    from tfos_core.streaming.feed import StreamFeed

__all__ = ("DEFAULT_INTERVAL_S", "TFCluster")

#: From one batch of a streaming DataFrame to the next, in seconds.
DEFAULT_INTERVAL_S = 10.0
#: What a stream gets to end when its cluster is down, in seconds.
_STREAM_END_S = 60.0


class TFCluster(running.TFCluster):
    """A started cluster; made by `run`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._streams = Streams(self._emit, tell_nodes=self._tell_fed, tell_stoppers=self._tell_stoppers)

    @property
    def control(self) -> tuple[str, int, bytes]:
        """Host, port and secret of the server that can be asked to stop a stream: `reservation.Client(...).request_stop()`."""
        assert self._server is not None  # noqa: S101 - a started cluster has one
        host, port = self._server.address
        return host, port, self._server.secret

    def train(  # type: ignore[override] # a stream has no end to report
        self,
        dataRDD: Any,
        num_epochs: int = 0,
        feed_timeout: float = 600,
        qname: str = "input",
        *,
        interval: float = DEFAULT_INTERVAL_S,
        checkpoint: str | None = None,
        **options: Any,
    ) -> FeedReport | StreamFeed:
        """Feed all rows to the nodes, `num_epochs` times; or begin to feed a stream.

        Rows: returns when they were consumed, see `running.TFCluster.train` for `options`. A stream is a DStream, whose
        StreamingContext the caller starts, or a streaming DataFrame, which is started here: returns a `StreamFeed` at once, every
        batch is fed as it comes, and `shutdown` waits for the end.

        Args:
            dataRDD: an RDD, a DataFrame, a DStream, or a streaming DataFrame.
            num_epochs: of a stream 0 or 1: every batch is fed once.
            feed_timeout: seconds without any row consumed while a batch is fed; waiting for a batch does not count.
            interval: of a streaming DataFrame, seconds from one batch to the next.
            checkpoint: of a streaming DataFrame, folder or URL where Spark notes what was fed, so that a later run goes on there.

        Raises:
            ConfigError: the arguments can not work, or the stream can not be started.
            ClusterStateError: not in `InputMode.SPARK`, or after `shutdown`.
            FeedTimeoutError, FeedError: rows could not be delivered.
            NodeFailedError, NodeLostError: a node failed.
        """
        rows = super().train
        if not is_stream(dataRDD):
            return rows(dataRDD, num_epochs, feed_timeout, qname, **options)
        self._require_feed("train", qname)
        self._raise_error()
        if options.get("cache") is not None:
            raise ConfigError("a stream passes once, so that there is nothing to keep in a cache", "Leave cache out.")
        if num_epochs > 1:
            raise ConfigError(f"num_epochs is {num_epochs}, but a stream passes once", "Use 1, or train on files that are there.")
        if interval <= 0:
            raise ConfigError(f"interval is {interval:g}", "Use a number of seconds above 0.")
        return self._streams.start(
            dataRDD, lambda batch: rows(batch, 1, feed_timeout, qname), interval=interval, checkpoint=checkpoint
        )

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """Wait for the end of streams, end the feed, wait for the nodes' functions to return, stop the serving nodes.

        A stream ends when every node has called `terminate()` or returned, when its `StreamFeed` or the cluster is told to stop
        (`tfos stop-streaming`, `reservation.Client.request_stop`), when its source does, or when a node fails. May be called from
        any thread.

        Args:
            ssc: a StreamingContext to wait for and to stop, as in 2022; that of a DStream that `train` was given need not be.
            grace_secs: an evaluator may go on for so long after the others have ended.
            timeout: seconds from the end of the streams until the nodes must have ended.

        Raises:
            FeedError: a stream ended by an error of its own.
            NodeFailedError, NodeLostError: the first failure of the cluster, also of nodes that failed after the feed had ended.
            NodeTimeoutError: a node did not end in time.
        """
        if ssc is not None and not self._closed and self._feed is not None:
            self._streams.adopt(ssc)
        try:
            error = self._streams.await_end(lambda: self._error is not None or self._closed)
        except BaseException:
            self._close("the wait for the stream was interrupted")
            raise
        if error is not None:
            self._set_error(error)
        try:
            super().shutdown(None, grace_secs, timeout)
        finally:
            self._streams.close("the cluster is down", _STREAM_END_S)

    def _open_server(self, timeout: float) -> Server:
        server = super()._open_server(timeout)
        if self._feed is not None:
            self._feed.on_all_closed = self._on_all_closed
        return server

    def _on_all_closed(self) -> None:
        self._streams.request_stop("no node takes rows any more")

    def _on_stop(self) -> None:
        self._streams.on_stop_message()

    def _fail(self, error: TfosError) -> None:
        super()._fail(error)
        self._streams.request_stop(str(error))

    def _tell_fed(self, message: Any) -> None:
        for slot in self._plan.fed:
            try:
                self._server.send(slot.name, message)  # type: ignore[union-attr]
            except ChannelClosedError:
                continue  # it has ended, and takes no rows

    def _tell_stoppers(self, message: Any) -> None:
        if self._server is not None:
            self._server.tell_stoppers(message)
