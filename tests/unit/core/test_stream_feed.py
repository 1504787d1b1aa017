"""One stream that is fed: what is counted, what a stop waits for, and whose errors count. The source is driven by the test."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tfos_core import events
from tfos_core.errors import FeedError
from tfos_core.jobplan import FunctionRef, JobPlan, StreamPlan
from tfos_core.streaming import is_stream
from tfos_core.streaming.feed import StreamFeed, StreamStoppedError
from tfos_core.streaming.streams import NOT_A_STREAM, STREAM_ENDED, Streams

LONGEST_S = 30.0


@dataclass(frozen=True)
class Fed:
    rows: int


class Source:
    """A stream whose batches the test hands out; ends when it is stopped."""

    def __init__(self, *, drains: bool = False) -> None:
        self.is_drained_by_stop = drains
        self.stopped = threading.Event()

    def start(self, on_batch: Any, on_end: Any) -> None:
        self.on_batch, self.on_end = on_batch, on_end

    def stop(self) -> None:
        if not self.stopped.is_set():
            self.stopped.set()
            self.on_end(None)


class Made:
    """A feed, its source, and what it told."""

    def __init__(self, feed: Any = lambda data: Fed(len(data)), *, drains: bool = False) -> None:
        self.source = Source(drains=drains)
        self.events: list[Any] = []
        self.ended: list[StreamFeed] = []
        self.feed = StreamFeed(self.source, feed, emit=self.events.append, on_end=self.ended.append)
        self.feed.start()


def test_batches_and_rows_are_counted_and_empty_batches_are_not() -> None:
    made = Made()
    for data in ("abc", "", "de"):
        made.source.on_batch(data)
    assert (made.feed.batches, made.feed.rows, made.feed.has_ended) == (2, 5, False)
    assert made.feed.stop("enough", timeout=LONGEST_S)
    told = [(e.kind, e.rows) for e in made.events]
    assert told == [("stream_progress", 3), ("stream_progress", 2), ("stream_finished", 5)]
    assert made.events[-1] == events.StreamFinished(batches=2, rows=5, reason="enough")
    assert made.ended == [made.feed]
    assert made.feed.error is None


def test_a_stop_waits_for_the_batch_in_flight_and_takes_no_other() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: str) -> Fed:
        begun.set()
        assert go_on.wait(LONGEST_S)
        return Fed(len(data))

    made = Made(slow)
    thread = threading.Thread(target=made.source.on_batch, args=("abcd",))
    thread.start()
    assert begun.wait(LONGEST_S)
    made.feed.request_stop("enough")
    with pytest.raises(StreamStoppedError):
        made.source.on_batch("e")
    assert not made.source.stopped.is_set()
    go_on.set()
    assert made.feed.wait(LONGEST_S)
    thread.join(LONGEST_S)
    assert (made.feed.batches, made.feed.rows) == (1, 4)


def test_a_source_that_drains_by_itself_goes_on_handing_out_while_it_stops() -> None:
    made = Made(drains=True)
    made.feed.request_stop("enough")
    made.source.on_batch("abc")
    assert made.feed.wait(LONGEST_S)
    assert made.feed.rows == 3


def test_a_source_that_ends_by_itself_ends_the_feed_and_its_error_counts() -> None:
    made = Made()
    made.source.on_end(RuntimeError("the disk is full"))
    assert made.feed.wait(LONGEST_S)
    assert isinstance(made.feed.error, FeedError)
    assert "the disk is full" in str(made.feed.error)
    quiet = Made()
    quiet.source.on_end(None)
    assert quiet.feed.wait(LONGEST_S)
    assert quiet.feed.error is None
    assert quiet.events[-1].reason == "the source ended"


def test_an_error_of_the_cluster_is_passed_on_and_not_told_twice() -> None:
    def fail(data: str) -> Fed:
        raise FeedError("worker:0 failed")

    made = Made(fail)
    with pytest.raises(FeedError):
        made.source.on_batch("a")
    made.source.on_end(RuntimeError("the callback raised"))
    assert made.feed.wait(LONGEST_S)
    assert made.feed.error is None


class Told:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.nodes: list[Any] = []
        self.stoppers: list[Any] = []
        self.streams = Streams(self.events.append, tell_nodes=self.nodes.append, tell_stoppers=self.stoppers.append)


class Context:
    """A StreamingContext whose end the test decides."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        self._over.wait(LONGEST_S)

    def stop(self, **how: Any) -> None:
        assert how == {"stopSparkContext": False, "stopGraceFully": True}
        self._over.set()


def test_whoever_asks_a_cluster_to_stop_hears_when_its_streams_have_ended() -> None:
    told = Told()
    told.streams.adopt(Context())
    told.streams.on_stop_message()
    assert told.streams.await_end(lambda: False) is None
    told.streams.close("down", LONGEST_S)
    assert told.nodes == [{"op": "feed.stop_requested"}]
    assert {"op": STREAM_ENDED, "batches": 0, "rows": 0} in told.stoppers


def test_a_cluster_without_streams_says_so_and_has_nothing_to_wait_for() -> None:
    told = Told()
    told.streams.on_stop_message()
    assert told.stoppers == [{"op": NOT_A_STREAM}]
    assert told.nodes == []
    assert told.streams.await_end(lambda: False) is None
    told.streams.close("down", 0)


def test_a_failure_of_the_cluster_ends_the_wait_for_its_streams() -> None:
    told, failed = Told(), threading.Event()
    told.streams.adopt(Context())

    def fail() -> None:
        failed.set()
        told.streams.request_stop("a node failed")

    threading.Thread(target=fail).start()
    assert told.streams.await_end(failed.is_set) is None


def test_rows_that_are_there_are_no_stream() -> None:
    class Frame:
        isStreaming = False  # noqa: N815 - Spark's name

    class Streaming:
        isStreaming = True  # noqa: N815

    assert [is_stream(data) for data in (Frame(), [1], None, Streaming())] == [False, False, False, True]


def test_the_plan_of_a_stream_survives_its_trip() -> None:
    ref = FunctionRef(module="m", function="f", shown="m:f")
    stream = StreamPlan(source="files", path="/in", format="csv", columns=("a",), transform=ref, options={"schema": "a int"})
    plan = JobPlan(
        run_id="r", name="n", run_folder="/r", channel=None, entrypoint=ref, args={}, input_mode="spark", num_nodes=1, stream=stream
    )
    assert JobPlan.from_json(plan.to_json()) == plan
