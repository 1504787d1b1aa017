"""Every kind of RDD and DataFrame reaches a node whole: rows in = rows out.

The node is a hub in this process and the executor a local one; what is real are Spark's tasks, their Python workers and the socket.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import functools
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.spark_context import start_context

from tfos_core.errors import ClusterStateError, ConfigError, FeedError, FeedTimeoutError, ResultCountError
from tfos_core.events import Event, FeedFinished
from tfos_core.feed import rendezvous, source
from tfos_core.feed.coordinator import FeedCoordinator
from tfos_core.feed.datafeed import DataFeed
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.rendezvous import Descriptor
from tfos_core.feed.source import feed_rdd, is_raw
from tfos_core.feed.tasks import Target

pytestmark = pytest.mark.spark

DEADLINE = 60.0


@dataclass
class Direct:
    """Hub and coordinator in one process: messages need no wire, but keep their order and their own thread."""

    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    target: Callable[[dict[str, Any]], None] = print

    def send(self, message: dict[str, Any]) -> None:
        # A closed uplink takes no more either, and raises nothing in whoever still has something to say.
        with contextlib.suppress(RuntimeError):
            self.pool.submit(self.target, message)


@dataclass
class LocalNode:
    sc: Any
    hub: FeedHub
    coordinator: FeedCoordinator
    events: list[Event]
    pool: ThreadPoolExecutor

    def rows_of(self, data: Any, *, size: int = 100, **kwargs: Any) -> list[Any]:
        consumed = self.pool.submit(self._consume, size)
        report = self.coordinator.train(self.sc, data, feed_timeout=DEADLINE, final=True, **kwargs)
        rows = consumed.result(DEADLINE)
        assert report.rows == len(rows)
        return rows

    def _consume(self, size: int) -> list[Any]:
        feed = DataFeed(self.hub)
        rows: list[Any] = []
        while not feed.should_stop():
            rows += feed.next_batch(size)
        return rows


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    with start_context("local[2,2]") as context:
        context.setCheckpointDir(str(tmp_path_factory.mktemp("checkpoints")))
        yield SparkSession(context)


@pytest.fixture(scope="module")
def local_dirs(spark: Any) -> str:
    return str(spark.sparkContext.parallelize([0], 1).map(_local_dirs).first())


def _local_dirs(_: int) -> str:
    return os.environ["SPARK_LOCAL_DIRS"]


@pytest.fixture
def node(spark: Any, local_dirs: str) -> Iterator[LocalNode]:
    with local_node(spark, local_dirs) as made:
        yield made


@contextlib.contextmanager
def local_node(spark: Any, local_dirs: str, budget: int = 4 << 20) -> Iterator[LocalNode]:
    environ = {**os.environ, "SPARK_LOCAL_DIRS": local_dirs}
    folder = rendezvous.create_folder(environ)
    listener = rendezvous.listen(folder)
    generation = uuid.uuid4().hex[:8]
    up, down = Direct(), Direct()
    events: list[Event] = []
    hub = FeedHub(
        listener, node="worker:0", generation=generation, uplink=up, budget_bytes=budget, progress_path=folder / "progress"
    )
    coordinator = FeedCoordinator(["worker:0"], lambda _, message: down.send(message), events.append, generation=generation)
    up.target = lambda message: coordinator.handle("worker:0", message)
    down.target = hub.on_message
    Descriptor(
        generation=generation,
        node="worker:0",
        socket=str(folder / "node.sock"),
        progress=str(folder / "progress"),
        supervisor_pid=os.getpid(),
        supervisor_started=rendezvous.process_start_time(os.getpid()),
    ).write(folder)
    hub.start()
    pool = ThreadPoolExecutor(4)
    try:
        yield LocalNode(spark.sparkContext, hub, coordinator, events, pool)
    finally:
        hub.stop()
        listener.close()
        for executor in (pool, up.pool, down.pool):
            executor.shutdown(wait=True)
        rendezvous.remove_folder(folder)


Point = collections.namedtuple("Point", "x y")


def double(x: int) -> int:
    return 2 * x


def pair(x: int) -> tuple[int, str]:
    return x % 5, f"v{x}"


def array_row(x: int) -> tuple[Any, int]:
    return np.full(20, x, dtype=np.float32), x


def is_even(x: int) -> bool:
    return x % 2 == 0


def nothing(rows: Iterator[Any]) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True)
class Kind:
    """A kind of RDD, and whether its rows go through unread."""

    make: Callable[[Any, Path], Any]
    raw: bool


def checkpointed(sc: Any) -> Any:
    rdd = sc.parallelize(range(200), 3).map(double)
    rdd.checkpoint()
    rdd.count()
    return rdd


def text(sc: Any, folder: Path) -> str:
    (folder / "a.txt").write_text("".join(f"line {i} \u00e9\n" for i in range(300)), encoding="utf-8")
    return f"file://{folder}/a.txt"


def saved_pickle(sc: Any, folder: Path) -> Any:
    sc.parallelize(range(100), 2).map(pair).saveAsPickleFile(f"file://{folder}/pickled")
    return sc.pickleFile(f"file://{folder}/pickled")


def saved_sequence(sc: Any, folder: Path) -> Any:
    sc.parallelize(range(100), 2).map(pair).saveAsSequenceFile(f"file://{folder}/sequence")
    return sc.sequenceFile(f"file://{folder}/sequence")


def records(sc: Any, folder: Path) -> Any:
    (folder / "records.bin").write_bytes(bytes(range(240)))
    return sc.binaryRecords(f"file://{folder}/records.bin", 8)


def session(sc: Any) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


KINDS = {
    "parallelize a range": Kind(lambda sc, _: sc.parallelize(range(1000), 3), False),
    "parallelize tuples": Kind(lambda sc, _: sc.parallelize([(float(i), [i, i]) for i in range(500)], 3), True),
    "parallelize arrays": Kind(lambda sc, _: sc.parallelize([array_row(i) for i in range(50)], 3), True),
    "parallelize namedtuples": Kind(lambda sc, _: sc.parallelize([Point(i, "y") for i in range(50)], 2), True),
    "parallelize one value": Kind(lambda sc, _: sc.parallelize([None, {"a": 1}, "x", b"y", 3.5], 2), True),
    "range": Kind(lambda sc, _: sc.range(0, 1000, 1, 4), False),
    "map": Kind(lambda sc, _: sc.parallelize(range(1000), 3).map(double), False),
    "map to arrays": Kind(lambda sc, _: sc.parallelize(range(300), 3).map(array_row), False),
    "filter": Kind(lambda sc, _: sc.parallelize(range(1000), 3).filter(is_even), False),
    "cached map": Kind(lambda sc, _: sc.parallelize(range(1000), 3).map(double).cache(), True),
    "map of cached map": Kind(lambda sc, _: sc.parallelize(range(1000), 3).map(double).cache().map(double), False),
    "checkpointed map": Kind(lambda sc, _: checkpointed(sc), True),
    "df.rdd": Kind(lambda sc, _: session(sc).range(500).selectExpr("id", "cast(id as string) s").rdd, True),
    "union": Kind(lambda sc, _: sc.parallelize(range(100), 2).union(sc.parallelize(range(50), 1).map(double)), True),
    "union of text and numbers": Kind(lambda sc, folder: sc.textFile(text(sc, folder)).union(sc.parallelize(range(50), 1)), True),
    "coalesce": Kind(lambda sc, _: sc.parallelize(range(1000), 6).coalesce(2), True),
    "coalesce map": Kind(lambda sc, _: sc.parallelize(range(1000), 6).map(double).coalesce(2), True),
    "repartition": Kind(lambda sc, _: sc.parallelize(range(1000), 2).repartition(4), True),
    "repartition map": Kind(lambda sc, _: sc.parallelize(range(1000), 2).map(pair).repartition(4), True),
    "partitionBy": Kind(lambda sc, _: sc.parallelize(range(200), 2).map(pair).partitionBy(3), True),
    "reduceByKey": Kind(lambda sc, _: sc.parallelize(range(200), 2).map(pair).reduceByKey(max), False),
    "groupByKey": Kind(lambda sc, _: sc.parallelize(range(200), 2).map(pair).groupByKey().mapValues(list), False),
    "sortBy": Kind(lambda sc, _: sc.parallelize(range(200), 2).sortBy(double), False),
    "join": Kind(lambda sc, _: sc.parallelize(range(20), 2).map(pair).join(sc.parallelize(range(10), 2).map(pair)), False),
    "distinct": Kind(lambda sc, _: sc.parallelize([1, 2, 2, 3] * 20, 2).distinct(), False),
    "sample": Kind(lambda sc, _: sc.parallelize(range(500), 2).sample(False, 0.5, 7), False),
    "glom": Kind(lambda sc, _: sc.parallelize(range(500), 4).glom(), False),
    "zipWithIndex": Kind(lambda sc, _: sc.parallelize(range(100), 3).zipWithIndex(), False),
    "zip": Kind(lambda sc, _: sc.parallelize(range(100), 2).zip(sc.parallelize(range(100), 2)), False),
    "cartesian": Kind(lambda sc, _: sc.parallelize(range(30), 2).cartesian(sc.parallelize(range(20), 2)), False),
    "emptyRDD": Kind(lambda sc, _: sc.emptyRDD(), False),
    "empty partitions": Kind(lambda sc, _: sc.parallelize([1, 2], 6), True),
    "no row": Kind(lambda sc, _: sc.parallelize(range(10), 3).mapPartitions(nothing), False),
    "textFile": Kind(lambda sc, folder: sc.textFile(text(sc, folder), 3), False),
    "wholeTextFiles": Kind(lambda sc, folder: sc.wholeTextFiles(text(sc, folder)), False),
    "binaryFiles": Kind(lambda sc, folder: sc.binaryFiles(text(sc, folder)), False),
    "binaryRecords": Kind(records, False),
    "pickleFile": Kind(saved_pickle, True),
    "sequenceFile": Kind(saved_sequence, True),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_row_of_an_rdd_arrives_once(name: str, node: LocalNode, tmp_path: Path) -> None:
    kind = KINDS[name]
    rdd = kind.make(node.sc, tmp_path)
    # The way is part of what is tested: a kind that silently takes the slow way is a loss of speed, the fast one a loss of rows.
    assert is_raw(rdd) is kind.raw
    expected = rdd.collect()
    rows = node.rows_of(rdd)
    assert collections.Counter(map(repr, rows)) == collections.Counter(map(repr, expected))
    assert {type(row) for row in rows} == {type(row) for row in expected}
    finished = [event for event in node.events if isinstance(event, FeedFinished)]
    assert [event.rows for event in finished] == [len(expected)]
    assert finished[0].partitions == rdd.getNumPartitions()


def test_every_epoch_feeds_every_row(node: LocalNode) -> None:
    rows = node.rows_of(node.sc.parallelize(range(100), 3), num_epochs=3)
    assert collections.Counter(rows) == dict.fromkeys(range(100), 3)
    assert [event.epoch for event in node.events if isinstance(event, FeedFinished)] == [0, 1, 2]


def test_dataframe_rows_have_the_stated_forms(node: LocalNode, spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    query = """select * from values
        (1, 1.5D, cast(2.5 as decimal(5,2)), 'x', X'00ff', date'2024-02-29', timestamp'2024-02-29 12:00:00', array(1.0D, 2.0D),
         array(array(1, 2), array(3, 4)), array('a', null), named_struct('k', 7), map('m', 8), true),
        (null, null, null, null, null, null, null, null, null, null, null, null, null)
        as t(i, f, dec, s, b, d, ts, a, aa, strs, st, m, flag)"""
    rows = node.rows_of(spark.sql(query).coalesce(1))
    first, nulls = rows
    assert nulls == (None,) * 13
    assert first[:6] == (1, 1.5, decimal.Decimal("2.50"), "x", b"\x00\xff", datetime.date(2024, 2, 29))
    assert first[6] == datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert list(first[7]) == [1.0, 2.0]
    assert [list(inner) for inner in first[8]] == [[1, 2], [3, 4]]
    assert first[9:] == (["a", None], {"k": 7}, [("m", 8)], True)


def test_arrays_of_numbers_become_numpy_arrays(node: LocalNode, spark: Any) -> None:
    frame = spark.range(100).selectExpr("id", "array_repeat(cast(id as float), 8) a", "sequence(0, id % 3) ragged")
    rows = node.rows_of(frame)
    assert len(rows) == 100
    for row in rows:
        assert isinstance(row[0], int)
        assert row[1].dtype == np.float32
        assert row[1].tolist() == [float(row[0])] * 8
        assert row[2].tolist() == list(range(row[0] % 3 + 1))


def test_a_dataframe_with_a_shuffle_feeds_every_row_in_every_epoch(node: LocalNode, spark: Any) -> None:
    frame = spark.range(1000).selectExpr("id % 7 k", "id").groupBy("k").count()
    rows = node.rows_of(frame, num_epochs=2)
    assert collections.Counter(rows) == {(k, 1000 // 7 + (k < 1000 % 7)): 2 for k in range(7)}


def test_an_empty_dataframe_feeds_no_row(node: LocalNode, spark: Any) -> None:
    assert node.rows_of(spark.range(10).where("id > 20")) == []


def test_feed_tasks_of_a_dataframe_need_one_python_worker(spark: Any) -> None:
    """What they answer is read by the driver as it comes from the JVM, not by a second Python worker of each task."""
    assert is_raw(feed_rdd(spark.range(10), Target(generation="g", feed_timeout=1)))


def test_feeding_a_dataframe_is_one_spark_job_for_an_epoch(node: LocalNode, spark: Any) -> None:
    frame, tracker = spark.range(60).selectExpr("repeat('x', 100) s"), spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    node.rows_of(frame, num_epochs=2)
    # Spark 3.5 knows no limit in bytes, so one more job samples how large rows are.
    sampled = int(spark.version.startswith("3."))
    assert len(set(tracker.getJobIdsForGroup(None)) - before) == 2 + sampled


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded by Spark", "bounded by the feed"])
def test_the_session_keeps_its_arrow_settings_and_batches_stay_small(
    node: LocalNode, spark: Any, monkeypatch: pytest.MonkeyPatch, bounded: bool
) -> None:
    if not bounded:
        # As in Spark 3.5, which knows no limit in bytes.
        monkeypatch.setattr(source, "_BYTES", "spark.sql.execution.arrow.noSuchSetting")
    names = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch")
    before = [spark.conf.get(name, None) for name in names]
    rows = node.rows_of(spark.range(60).selectExpr("repeat('x', 600000) s"))
    assert [len(row[0]) for row in rows] == [600_000] * 60
    assert [spark.conf.get(name, None) for name in names] == before


def test_ml_vectors_are_refused_with_the_way_to_convert_them(node: LocalNode, spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    frame = spark.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["features"])
    with pytest.raises(ConfigError, match="ML vectors") as caught:
        node.coordinator.train(node.sc, frame)
    assert "vector_to_array('features')" in str(caught.value.hint)


def test_what_is_neither_rdd_nor_dataframe_is_refused(node: LocalNode) -> None:
    with pytest.raises(ConfigError, match=r"not builtins\.list"):
        node.coordinator.train(node.sc, [1, 2, 3])
    with pytest.raises(ConfigError, match="num_epochs is -1"):
        node.coordinator.train(node.sc, node.sc.emptyRDD(), num_epochs=-1)


def test_a_dataframe_with_a_mapping_gives_columns_by_name(node: LocalNode, spark: Any) -> None:
    consumed = node.pool.submit(DataFeed(node.hub, input_mapping={"b": "tb", "a": "ta"}).next_batch, 10)
    node.coordinator.train(node.sc, spark.range(10).selectExpr("id b", "'x' c", "id * 2 a").coalesce(1), feed_timeout=DEADLINE)
    assert consumed.result(DEADLINE) == {"ta": [2 * i for i in range(10)], "tb": list(range(10))}


def test_names_of_columns_may_hold_dots_and_backticks(node: LocalNode, spark: Any) -> None:
    consumed = node.pool.submit(DataFeed(node.hub, input_mapping={"b.c": "x", "a`": "y"}).next_batch, 3)
    frame = spark.range(3).selectExpr("id AS `b.c`", "id * 2 AS `a```").coalesce(1)
    node.coordinator.train(node.sc, frame, feed_timeout=DEADLINE)
    assert consumed.result(DEADLINE) == {"x": [0, 1, 2], "y": [0, 2, 4]}


def test_terminate_ends_the_feed_as_a_success(node: LocalNode) -> None:
    feed = DataFeed(node.hub)
    consumed = node.pool.submit(lambda: (feed.next_batch(10), feed.terminate()))
    report = node.coordinator.train(node.sc, node.sc.parallelize(range(4000), 40), num_epochs=3, feed_timeout=DEADLINE)
    consumed.result(DEADLINE)
    assert report.rows == 10
    assert report.partitions_discarded == 40


def test_a_timeout_costs_one_timeout_and_names_the_node(node: LocalNode) -> None:
    with pytest.raises(FeedTimeoutError, match="node worker:0 consumed no row for 1 seconds"):
        node.coordinator.train(node.sc, node.sc.parallelize(range(1000), 8), feed_timeout=1)


def test_an_abort_from_another_thread_cancels_the_feed(node: LocalNode) -> None:
    feed = DataFeed(node.hub)

    def abort() -> None:
        feed.next_batch(1)
        node.coordinator.abort(FeedError("stop it"))

    aborted = node.pool.submit(abort)
    with pytest.raises(FeedError, match="stop it"):
        node.coordinator.train(node.sc, node.sc.parallelize(range(1000), 8), feed_timeout=DEADLINE)
    aborted.result(DEADLINE)


def fail_once(folder: str, index: int, rows: Iterator[int]) -> Iterator[int]:
    for number, row in enumerate(rows):
        if index == 1 and number == 900 and not (Path(folder) / "failed").exists():
            (Path(folder) / "failed").touch()
            raise RuntimeError("once")
        yield row


def test_a_repeated_task_neither_loses_nor_doubles_rows(node: LocalNode, tmp_path: Path) -> None:
    rdd = node.sc.parallelize(range(2000), 2).mapPartitionsWithIndex(functools.partial(fail_once, str(tmp_path)))
    assert sorted(node.rows_of(rdd, size=7)) == list(range(2000))
    assert (tmp_path / "failed").exists()


def fail_once_above(folder: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Record batches, of which another Python worker than the feed task's makes the fortieth in vain at first."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if context.partitionId() == 1 and number == 40 and not (Path(folder) / "failed").exists():
            (Path(folder) / "failed").touch()
            raise RuntimeError("once")
        yield batch


@pytest.mark.parametrize("kind", ["a DataFrame", "its pickled rows", "rows of a Python function"])
def test_rows_that_break_off_before_their_end_are_fed_again(kind: str, node: LocalNode, spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as sql

    # Rows of 5 KB: the first batches are on their way through the feed task when the fortieth fails.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        made = spark.range(0, 10_000, 1, 2).mapInArrow(functools.partial(fail_once_above, str(tmp_path)), "id long")
        df = made.withColumn("text", sql.repeat(sql.lit("x"), 5000))
        data = {"a DataFrame": df, "its pickled rows": df.rdd}.get(kind) or df.rdd.map(tuple)
        assert sorted(row[0] for row in node.rows_of(data)) == list(range(10_000))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "failed").exists()


def test_a_row_that_spark_can_not_compute_is_named(node: LocalNode) -> None:
    node.pool.submit(DataFeed(node.hub).next_batch, 10)
    with pytest.raises(FeedError, match="ZeroDivisionError"):
        node.coordinator.train(node.sc, node.sc.parallelize(range(3), 1).map(lambda x: 1 // (x - 1)), feed_timeout=DEADLINE)
    node.hub.close()


def test_after_the_final_call_no_other_follows(node: LocalNode) -> None:
    node.rows_of(node.sc.parallelize([1], 1))
    with pytest.raises(ClusterStateError, match="the feed has ended"):
        node.coordinator.train(node.sc, node.sc.parallelize([1], 1))


def serve(hub: FeedHub, size: int, short_by: int = 0) -> list[int]:
    feed = DataFeed(hub, train_mode=False)
    sizes = []
    while not feed.should_stop():
        batch = feed.next_batch(size)
        sizes.append(len(batch))
        feed.batch_results([(row, "r") for row in batch][short_by:])
    return sizes


@pytest.mark.parametrize("pipelined", [False, True])
def test_inference_gives_one_result_per_row_in_order(pipelined: bool, node: LocalNode) -> None:
    server = node.pool.submit(serve, node.hub, 7)
    rdd = node.sc.parallelize(range(100), 4)
    rdd = rdd.map(double) if pipelined else rdd
    results = node.coordinator.inference(node.sc, rdd, feed_timeout=DEADLINE)
    expected = [(2 * i if pipelined else i, "r") for i in range(100)]
    assert results.collect() == expected
    assert results.take(3) == expected[:3]
    assert results.count() == 100
    node.coordinator.end_of_feed()
    assert {7, 4} <= set(server.result(DEADLINE))


def test_inference_with_a_result_too_few_fails_at_once(node: LocalNode) -> None:
    server = node.pool.submit(serve, node.hub, 10, 1)
    with pytest.raises(Exception, match="9 results for 10 rows"):
        node.coordinator.inference(node.sc, node.sc.parallelize(range(100), 2), feed_timeout=DEADLINE).collect()
    with pytest.raises(ResultCountError):
        server.result(DEADLINE)
    with pytest.raises(ResultCountError):
        node.coordinator.train(node.sc, node.sc.emptyRDD())


def test_no_thread_of_the_feed_stays(spark: Any, local_dirs: str) -> None:
    with local_node(spark, local_dirs) as node:
        assert len(node.rows_of(node.sc.parallelize(range(10), 2))) == 10
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("tfos-")] == []
