"""Streams on real executors: fed batch by batch, stopped in every way that there is, nothing lost of the batch in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed.clusters import Recorder, started_cluster
from testbed.stream_nodes import fail_after, take_all
from testbed.waiting import poll_until

from tfos_core.errors import AuthenticationError, NodeFailedError
from tfos_core.reservation import Client, Right
from tfos_core.streaming.streams import NOT_A_STREAM, STREAM_ENDED

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LONGEST_S = 60.0


@pytest.fixture
def spark(sc: SparkContext) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


@pytest.fixture
def lines() -> Lines:
    return Lines()


class Lines:
    """What nodes print, and a way to wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.all: list[str] = []

    def __call__(self, node: str, lines: list[str]) -> None:
        with self._changed:
            self.all += lines
            self._changed.notify_all()

    def find(self, text: str) -> str:
        def found() -> str | None:
            return next((line for line in self.all if text in line), None)

        with self._changed:
            assert self._changed.wait_for(found, LONGEST_S), self.all
            return str(found())


class Folder:
    """A watched folder, into which files are dropped whole."""

    def __init__(self, path: Path) -> None:
        self.path = path / "watched"
        self.path.mkdir()
        self._count = 0
        self._outside = path

    def drop(self, *lines: str) -> None:
        self._count += 1
        name = f"part-{self._count}.txt"
        (self._outside / name).write_text("".join(f"{line}\n" for line in lines))
        (self._outside / name).rename(self.path / name)


def stream_of(spark: SparkSession, folder: Folder) -> Any:
    return spark.readStream.format("text").load(str(folder.path))


def batches(recorder: Recorder, count: int) -> list[Any]:
    return poll_until(
        lambda: found if len(found := recorder.all("stream_progress")) >= count else [], LONGEST_S, what=f"{count} batches"
    )


def test_files_are_fed_as_they_come_until_the_cluster_is_asked_to_stop(
    sc: SparkContext, spark: SparkSession, tmp_path: Path, lines: Lines
) -> None:
    recorder, folder = Recorder(), Folder(tmp_path)
    checkpoint = str(tmp_path / "checkpoint")
    with started_cluster(sc, take_all, {}, 2, on_event=recorder, options={"on_output": lines}) as cluster:
        stream = cluster.train(stream_of(spark, folder), interval=0.2, checkpoint=checkpoint)
        for number in range(3):
            folder.drop(*(f"{number}-{row}" for row in range(7)))
            batches(recorder, number + 1)
        host, port, secret = cluster.control
        with pytest.raises(AuthenticationError):
            Client((host, port), secret=bytes(32), right=Right.STOP)
        with Client((host, port), secret=secret, right=Right.STOP) as client:
            client.request_stop()
            told = client.receive(LONGEST_S)
        assert told == {"op": STREAM_ENDED, "batches": 3, "rows": 21}
        assert stream.wait(LONGEST_S)
        cluster.shutdown(timeout=LONGEST_S)
        assert sum(cluster.report().rows_per_node.values()) == 21
    assert "stop requested: True" in lines.find("took")
    (finished,) = recorder.all("stream_finished")
    assert (finished.batches, finished.rows) == (3, 21)
    assert [event.rows_total for event in recorder.all("stream_progress")] == [7, 14, 21]
    assert stream.error is None

    # A later run goes on where this one has stopped: everything was fed once.
    folder.drop("last")
    with started_cluster(sc, take_all, {}, 2, options={"on_output": lines}) as cluster:
        again = cluster.train(stream_of(spark, folder), interval=0.2, checkpoint=checkpoint)
        poll_until(lambda: again.rows, LONGEST_S, what="a row")
        assert again.stop(timeout=LONGEST_S)
    assert again.rows == 1


def test_nodes_that_have_enough_end_the_stream(sc: SparkContext, spark: SparkSession, tmp_path: Path, lines: Lines) -> None:
    recorder, folder = Recorder(), Folder(tmp_path)
    folder.drop(*map(str, range(50)))
    with started_cluster(sc, take_all, {"enough": 6}, 2, on_event=recorder, options={"on_output": lines}) as cluster:
        stream = cluster.train(stream_of(spark, folder), interval=0.2)
        feeder = Feeder(lambda: folder.drop(*map(str, range(50))))
        with feeder:
            cluster.shutdown(timeout=LONGEST_S)
    assert stream.has_ended
    (finished,) = recorder.all("stream_finished")
    assert finished.reason == "no node takes rows any more"
    assert len([line for line in lines.all if line.startswith("took")]) == 2


class Feeder:
    """Calls a function again and again in a thread of its own."""

    def __init__(self, feed: Callable[[], object]) -> None:
        self._feed = feed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(0.3):
            self._feed()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join(10)


def test_a_node_that_fails_ends_the_stream_with_its_error(sc: SparkContext, spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.drop(*map(str, range(9)))
    with started_cluster(sc, fail_after, {"rows": 4}, 2) as cluster:
        stream = cluster.train(stream_of(spark, folder), interval=0.2)
        with pytest.raises(NodeFailedError, match="row 4 is too much"):
            cluster.shutdown(timeout=LONGEST_S)
    assert stream.wait(LONGEST_S)
    assert not spark.streams.active


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[Any]:
    import warnings

    from pyspark.streaming import StreamingContext

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that DStreams are the older kind
        context = StreamingContext(sc, 0.5)
    yield context
    context.stop(stopSparkContext=False)


def test_dstreams_are_fed_and_a_stop_feeds_what_has_arrived(sc: SparkContext, ssc: Any, lines: Lines) -> None:
    recorder = Recorder()
    rdds = [sc.parallelize(range(10), 2), sc.parallelize(range(5), 1)]
    with started_cluster(sc, take_all, {}, 2, on_event=recorder, options={"on_output": lines}) as cluster:
        stream = cluster.train(ssc.queueStream(rdds))
        ssc.start()
        batches(recorder, 2)
        host, port, secret = cluster.control
        with Client((host, port), secret=secret, right=Right.STOP) as client:
            client.request_stop()
        cluster.shutdown(ssc, timeout=LONGEST_S)
    assert (stream.batches, stream.rows) == (2, 15)
    lines.find("took")


def test_a_cluster_without_a_stream_says_so_when_it_is_asked_to_stop(sc: SparkContext) -> None:
    with started_cluster(sc, take_all, {}, 2) as cluster:
        host, port, secret = cluster.control
        with Client((host, port), secret=secret, right=Right.STOP) as client:
            client.request_stop()
            assert client.receive(LONGEST_S) == {"op": NOT_A_STREAM}
        cluster.train(sc.parallelize(range(3), 1))
        cluster.shutdown(timeout=LONGEST_S)
        assert sum(cluster.report().rows_per_node.values()) == 3
