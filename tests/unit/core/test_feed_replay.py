"""Epochs from the caches of two nodes: coordinator and hubs of one process, real feed tasks over Unix sockets, no Spark."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tfos_core.errors import FeedTimeoutError, NodeFailedError
from tfos_core.events import Event, FeedFinished, Warned
from tfos_core.feed import coordinator as module
from tfos_core.feed import rendezvous
from tfos_core.feed.coordinator import FeedCoordinator
from tfos_core.feed.datafeed import DataFeed
from tfos_core.feed.dataset import BatchSource
from tfos_core.feed.feeder import Feeder, Hello, NodeClosedError
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.packing import pack_frames
from tfos_core.feed.rendezvous import Descriptor
from tfos_core.feed.tasks import EPOCH_PROPERTY, Outcome
from tfos_core.feed.wire import Mode

DEADLINE = 30.0
NODES = ("worker:0", "worker:1")

Rows = list[Any]


@dataclass
class FakeContext:
    """The few calls of a SparkContext that the coordinator makes."""

    properties: dict[str, Any] = field(default_factory=dict)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        pass

    removeJobTag = cancelJobsWithTag = addJobTag  # noqa: N815 - Spark's names

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value


@dataclass
class Mail:
    """Messages one way: in order, in a thread of their own."""

    target: Callable[..., None]
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def send(self, *message: Any) -> None:
        self.pool.submit(self.target, *message)


@dataclass
class Cluster:
    """`jobs` counts the Spark jobs; the partition p goes to node p % 2."""

    hubs: dict[str, FeedHub]
    descriptors: dict[str, Descriptor]
    coordinator: FeedCoordinator
    events: list[Event]
    pool: ThreadPoolExecutor
    up: Mail
    sc: FakeContext = field(default_factory=FakeContext)
    partitions: list[Rows] = field(default_factory=list)
    jobs: list[Any] = field(default_factory=list)

    def train(self, partitions: list[Rows], epochs: int = 3, **options: Any) -> Any:
        self.partitions = partitions
        settings: dict[str, Any] = {"cache": NodeCache(), "final": True, "feed_timeout": DEADLINE} | options
        return self.coordinator.train(self.sc, self, num_epochs=epochs, **settings)

    def later(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self.pool.submit(function, *args)

    def warnings(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, Warned) and event.id.startswith("cache")]

    @property
    def epochs(self) -> list[FeedFinished]:
        return [event for event in self.events if isinstance(event, FeedFinished)]

    # --- what the coordinator asks an RDD

    def getNumPartitions(self) -> int:  # noqa: N802 - Spark's name
        return len(self.partitions)

    def collect(self) -> list[str]:
        epoch = json.loads(self.sc.properties[EPOCH_PROPERTY])
        self.jobs.append(epoch["keep"])
        tasks = [self.pool.submit(self.feed, number, NODES[number % 2], 0, epoch) for number in range(len(self.partitions))]
        return [task.result(DEADLINE).to_json() for task in tasks]

    def feed(self, partition: int, node: str, attempt: int, epoch: Any) -> Outcome:
        hello = Hello(mode=Mode.TRAIN, generation="g", partition=partition, attempt=attempt, feed_timeout=DEADLINE, **epoch)
        try:
            with Feeder(self.descriptors[node], hello) as feeder:
                for packed in pack_frames((pickle.dumps([row], 5) for row in self.partitions[partition]), 1):
                    feeder.send(packed)
                feeder.finish()
                return Outcome(partition=partition, state="drained", node=node, rows=feeder.await_drained())
        except NodeClosedError:
            return Outcome(partition=partition, state="discarded", node=node)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Cluster]]:
    monkeypatch.setattr(module, "feed_rdd", lambda data, target: data)
    ends: list[Callable[[], Any]] = []

    def build(**options: Any) -> Cluster:
        events: list[Event] = []
        down = {node: Mail(print) for node in NODES}
        coordinator = FeedCoordinator(NODES, lambda node, message: down[node].send(message), events.append, generation="g")
        up = Mail(coordinator.handle)
        cluster = Cluster({}, {}, coordinator, events, ThreadPoolExecutor(16), up)
        for node in NODES:
            environ = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": f"/{node}"}
            folder = rendezvous.create_folder(environ)
            listener = rendezvous.listen(folder)
            hub = _hub(listener, node, up, folder, options)
            down[node].target = hub.on_message
            hub.start()
            cluster.hubs[node] = hub
            cluster.descriptors[node] = Descriptor(
                generation="g",
                node=node,
                socket=str(folder / "node.sock"),
                progress=str(folder / "progress"),
                supervisor_pid=1,
                supervisor_started=0,
            )
            ends.extend((hub.stop, listener.close))
        ends.extend((cluster.pool.shutdown, up.pool.shutdown, *(mail.pool.shutdown for mail in down.values())))
        return cluster

    before = threading.active_count()
    yield build
    for end in ends:
        end()
    assert threading.active_count() <= before


def _hub(listener: socket.socket, node: str, up: Mail, folder: Path, options: dict[str, Any]) -> FeedHub:
    uplink = _Up(up, node)
    return FeedHub(listener, node=node, generation="g", uplink=uplink, progress_path=folder / "progress", **options)


@dataclass
class _Up:
    mail: Mail
    node: str

    def send(self, message: dict[str, Any]) -> None:
        self.mail.send(self.node, message)


@pytest.fixture
def cluster(make: Callable[..., Cluster]) -> Cluster:
    return make()


def data(*sizes: int) -> list[Rows]:
    return [[([partition + 0.5, row + 0.1], row) for row in range(size)] for partition, size in enumerate(sizes)]


def of_node(partitions: list[Rows], node: int) -> Counter[str]:
    return Counter(map(repr, (row for rows in partitions[node::2] for row in rows)))


def take_all(hub: FeedHub, size: int = 4) -> Rows:
    feed, rows = DataFeed(hub), []
    while not feed.should_stop():
        rows += feed.next_batch(size)
    return rows


def iterate(hub: FeedHub, **options: Any) -> list[Rows]:
    """The rows of every iteration of `as_dataset`, until the feed has ended."""
    spec = hub.await_spec()
    assert spec is not None
    settings: dict[str, Any] = {"mapping": None, "all_epochs": False, "drop_remainder": False} | options
    source = BatchSource(hub=hub, batch_size=3, spec=spec, **settings)
    found = []
    while not hub.inbox.feed_ended:
        found.append([tuple(row) for features, labels in source() for row in zip(features.tolist(), labels.tolist(), strict=True)])
    return found


def test_one_job_feeds_all_epochs_and_every_row_comes_in_each(cluster: Cluster) -> None:
    partitions = data(7, 5, 3)
    taken = [cluster.later(take_all, hub) for hub in cluster.hubs.values()]
    report = cluster.train(partitions, 3)
    for node, future in enumerate(taken):
        rows = future.result(DEADLINE)
        assert Counter(map(repr, rows)) == Counter({row: 3 * count for row, count in of_node(partitions, node).items()})
    assert cluster.jobs == [NodeCache().to_dict()]
    assert (report.epochs, report.rows, report.partitions, report.partitions_discarded) == (3, 45, 9, 0)
    assert [(e.cached, e.rows, dict(e.rows_per_node)) for e in cluster.epochs] == [
        (cached, 15, {"worker:0": 10, "worker:1": 5}) for cached in (False, True, True)
    ]
    assert cluster.warnings() == []


def test_an_iteration_is_an_epoch(cluster: Cluster) -> None:
    partitions = data(7, 5)
    taken = [cluster.later(iterate, hub) for hub in cluster.hubs.values()]
    cluster.train(partitions, 3)
    for node, future in enumerate(taken):
        first, *others = future.result(DEADLINE)
        assert [sorted(rows) for rows in others[:2]] == [sorted(first)] * 2
        assert len(first) == len(partitions[node])
        assert others[2:] in ([], [[]])


def test_all_epochs_are_one_iteration_when_asked(cluster: Cluster) -> None:
    partitions = data(7, 5)
    taken = [cluster.later(lambda hub=hub: iterate(hub, all_epochs=True)) for hub in cluster.hubs.values()]
    cluster.train(partitions, 3)
    assert [len(future.result(DEADLINE)[0]) for future in taken] == [21, 15]


def test_a_node_without_a_row_sees_the_end_of_every_epoch(cluster: Cluster) -> None:
    taken = [cluster.later(iterate, hub) for hub in cluster.hubs.values()]
    cluster.train(data(4), 2)
    one, other = (future.result(DEADLINE) for future in taken)
    assert [len(rows) for rows in one][:2] == [4, 4]
    assert [len(rows) for rows in other][:2] == [0, 0]
    assert cluster.warnings() == []


def test_when_rows_do_not_fit_every_epoch_is_fed_and_it_is_said_once(cluster: Cluster) -> None:
    partitions = data(7, 5)
    taken = [cluster.later(take_all, hub) for hub in cluster.hubs.values()]
    report = cluster.train(partitions, 3, cache=NodeCache(memory_bytes=30, disk_bytes=0))
    assert report.rows == 36
    assert [len(future.result(DEADLINE)) for future in taken] == [21, 15]
    assert [keep is not None for keep in cluster.jobs] == [True, False, False]
    assert cluster.warnings() == ["cache-not-used"]
    assert all(hub.cache.status(0)["rows"] == 0 for hub in cluster.hubs.values())


def test_the_last_epoch_is_kept_by_nobody(cluster: Cluster) -> None:
    taken = [cluster.later(take_all, hub) for hub in cluster.hubs.values()]
    cluster.train(data(2, 2), 1, final=False)
    cluster.train(data(2, 2), 5, first_epoch=4)
    assert cluster.jobs == [None, None]
    assert [len(future.result(DEADLINE)) for future in taken] == [4, 4]


def test_every_train_call_feeds_its_own_rows(cluster: Cluster) -> None:
    taken = [cluster.later(take_all, hub) for hub in cluster.hubs.values()]
    assert cluster.train(data(2, 2), 2, final=False).rows == 8
    assert cluster.train(data(3, 1), 3).rows == 12
    assert len(cluster.jobs) == 2
    assert [len(future.result(DEADLINE)) for future in taken] == [4 + 9, 4 + 3]
    assert all(hub.cache.status(2)["rows"] == 0 for hub in cluster.hubs.values()), "memory is given back after the last epoch"


def test_blocks_are_shuffled_in_every_epoch_anew_and_in_the_same_way_again(make: Callable[..., Cluster]) -> None:
    orders = []
    for _ in range(2):
        cluster = make()
        taken = [cluster.later(iterate, hub) for hub in cluster.hubs.values()]
        cluster.train(data(20), 3, cache=NodeCache(shuffle=True, seed=5))
        first, second, third = taken[0].result(DEADLINE)[:3]
        assert first != second != third
        assert sorted(first) == sorted(second) == sorted(third)
        orders.append((second, third))
        taken[1].result(DEADLINE)
        cluster.hubs["worker:0"].stop()
        cluster.hubs["worker:1"].stop()
    assert orders[0] == orders[1]


def test_when_a_node_has_ended_spark_feeds_the_others(cluster: Cluster) -> None:
    def end_in_epoch_2(hub: FeedHub) -> None:
        feed = DataFeed(hub)
        assert len(feed.next_batch(9)) == 9
        feed.terminate()

    taken = cluster.later(take_all, cluster.hubs["worker:0"])
    ended = cluster.later(end_in_epoch_2, cluster.hubs["worker:1"])
    report = cluster.train(data(7, 5), 3)
    ended.result(DEADLINE)
    assert len(taken.result(DEADLINE)) == 21
    assert (len(cluster.jobs), cluster.warnings(), report.partitions_discarded) == (2, ["cache-not-used"], 2)


def test_when_all_nodes_have_ended_that_is_success(cluster: Cluster) -> None:
    def end_in_epoch_2(hub: FeedHub) -> None:
        feed = DataFeed(hub)
        feed.next_batch(6)
        feed.terminate()

    ended = [cluster.later(end_in_epoch_2, hub) for hub in cluster.hubs.values()]
    report = cluster.train(data(5, 5), 9)
    assert (report.epochs, report.rows, len(cluster.jobs)) == (2, 12, 1)
    for future in ended:
        future.result(DEADLINE)


def test_a_node_that_takes_nothing_any_more_is_a_timeout(cluster: Cluster) -> None:
    def stop_taking(hub: FeedHub) -> None:
        DataFeed(hub).next_batch(6)

    taken = cluster.later(take_all, cluster.hubs["worker:0"])
    cluster.later(stop_taking, cluster.hubs["worker:1"])
    with pytest.raises(FeedTimeoutError, match=r"worker:1 consumed no row for 1 seconds") as caught:
        cluster.train(data(5, 5), 3, feed_timeout=1)
    assert caught.value.node == "worker:1"
    cluster.hubs["worker:0"].close()
    taken.result(DEADLINE)


def test_a_failure_ends_a_replayed_epoch_at_once(cluster: Cluster) -> None:
    in_epoch_2 = threading.Event()

    def stop_taking(hub: FeedHub) -> None:
        DataFeed(hub).next_batch(6)
        in_epoch_2.set()

    for hub in cluster.hubs.values():
        cluster.later(stop_taking, hub)
    trained = cluster.later(cluster.train, data(5, 5), 3)
    assert in_epoch_2.wait(DEADLINE)
    cluster.coordinator.abort(NodeFailedError("node worker:0 failed: boom"))
    with pytest.raises(NodeFailedError, match="boom"):
        trained.result(DEADLINE)


def test_each_node_keeps_its_part_of_a_partition_that_was_fed_twice(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = data(6, 2)
    taken, handed_over = threading.Event(), threading.Event()

    def collect() -> list[str]:
        epoch = json.loads(cluster.sc.properties[EPOCH_PROPERTY])
        cluster.jobs.append(epoch["keep"])
        hello = Hello(mode=Mode.TRAIN, generation="g", partition=0, attempt=0, feed_timeout=DEADLINE, **epoch)
        with Feeder(cluster.descriptors["worker:0"], hello) as feeder:
            # One block of four rows, of which three are taken.
            frame = pickle.dumps(partitions[0][:4], 5)
            feeder.send(next(iter(pack_frames([frame], 1))))
            assert taken.wait(DEADLINE)
        other = cluster.later(cluster.feed, 1, "worker:1", 0, epoch)
        again = cluster.feed(0, "worker:1", 1, epoch)
        handed_over.set()
        return [outcome.to_json() for outcome in (again, other.result(DEADLINE))]

    def take_three(hub: FeedHub) -> Rows:
        rows: Rows = DataFeed(hub).next_batch(3)
        taken.set()
        assert handed_over.wait(DEADLINE)
        return rows + take_all(hub)

    monkeypatch.setattr(cluster, "collect", collect)
    one = cluster.later(take_three, cluster.hubs["worker:0"])
    other = cluster.later(take_all, cluster.hubs["worker:1"])
    report = cluster.train(partitions, 3)
    rows = Counter(map(repr, one.result(DEADLINE) + other.result(DEADLINE)))
    assert rows == Counter(repr(row) for part in partitions for row in part for _ in range(3))
    assert (report.rows, len(cluster.jobs), cluster.warnings()) == (24, 1, [])
    assert dict(cluster.epochs[2].rows_per_node) == {"worker:0": 3, "worker:1": 5}


def test_equal_steps_are_agreed_on_in_every_epoch(make: Callable[..., Cluster]) -> None:
    cluster = make(equal_steps=True)
    taken = [cluster.later(iterate, hub) for hub in cluster.hubs.values()]
    report = cluster.train(data(11, 7), 3)
    assert [[len(rows) for rows in future.result(DEADLINE)][:3] for future in taken] == [[6, 6, 6]] * 2
    cluster.up.pool.submit(int).result(DEADLINE)  # the last words of nodes have arrived
    assert (report.rows, cluster.coordinator.totals.steps) == (54, {"worker:0": 6, "worker:1": 6})
    assert cluster.coordinator.totals.left_over == {"worker:0": 15, "worker:1": 3}
