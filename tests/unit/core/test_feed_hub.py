"""A hub in this process, feed tasks in threads, over a real Unix socket; no Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfos_core.errors import ConfigError, FeedError, FeedTimeoutError, NodeFailedError, ResultCountError
from tfos_core.feed import rendezvous
from tfos_core.feed.datafeed import DataFeed
from tfos_core.feed.failures import to_wire
from tfos_core.feed.feeder import Feeder, Hello, NodeClosedError, NodeRefusedError
from tfos_core.feed.hub import FeedHub, report_interval_s
from tfos_core.feed.last_word import word_of
from tfos_core.feed.packing import pack_rows
from tfos_core.feed.refusal import Refusal
from tfos_core.feed.rendezvous import Descriptor, process_start_time
from tfos_core.feed.tasks import _rows_of
from tfos_core.feed.wire import Mode

DEADLINE = 20.0


@dataclass
class Recorder:
    """An uplink that keeps messages and wakes whoever waits for one."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def send(self, message: dict[str, Any]) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait(self, op: str, **fields: Any) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            for message in self.messages:
                if message["op"] == op and fields.items() <= message.items():
                    return message
            return None

        with self.changed:
            assert self.changed.wait_for(found, DEADLINE), f"no {op} {fields} among {self.messages}"
            message = found()
            assert message is not None
            return message


@dataclass
class Node:
    hub: FeedHub
    uplink: Recorder
    descriptor: Descriptor
    listener: socket.socket
    pool: ThreadPoolExecutor

    def feeder(
        self, partition: int = 0, *, mode: Mode = Mode.TRAIN, attempt: int = 0, timeout: float = DEADLINE, seq: int = 0
    ) -> Feeder:
        hello = Hello(mode=mode, generation="g1", partition=partition, attempt=attempt, feed_timeout=timeout, seq=seq)
        return Feeder(self.descriptor, hello)

    def feed(self, rows: list[Any], partition: int = 0, **kwargs: Any) -> int:
        block_bytes = kwargs.pop("block_bytes", 1 << 20)
        with self.feeder(partition, **kwargs) as feeder:
            if feeder.already_drained:
                return 0
            for packed in pack_rows(rows, block_bytes):
                feeder.send(packed)
            feeder.finish()
            return feeder.await_drained()

    def infer(self, rows: list[Any], partition: int = 0, **kwargs: Any) -> list[Any]:
        results: list[Any] = []
        with self.feeder(partition, mode=Mode.INFER, **kwargs) as feeder:
            for packed in pack_rows(rows, 1 << 20):
                feeder.send(packed)
                for kind, payload in feeder.results():
                    results += _rows_of(kind, payload)
            feeder.finish()
            for kind, payload in feeder.remaining_results():
                results += _rows_of(kind, payload)
        return results

    def later(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.pool.submit(function, *args, **kwargs)


MakeNode = Callable[..., Node]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    nodes: list[Node] = []

    def make(budget: int = 1 << 20) -> Node:
        environ = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": f"/x/{len(nodes)}"}
        folder = rendezvous.create_folder(environ)
        listener = rendezvous.listen(folder)
        uplink = Recorder()
        hub = FeedHub(
            listener, node="worker:0", generation="g1", uplink=uplink, budget_bytes=budget, progress_path=folder / "progress"
        )
        hub.start()
        descriptor = Descriptor(
            generation="g1",
            node="worker:0",
            socket=str(folder / "node.sock"),
            progress=str(folder / "progress"),
            supervisor_pid=1,
            supervisor_started=0,
        )
        nodes.append(Node(hub, uplink, descriptor, listener, ThreadPoolExecutor(8)))
        return nodes[-1]

    before = threading.active_count()
    yield make
    for node in nodes:
        node.hub.stop()
        node.listener.close()
        node.pool.shutdown(wait=True)
    assert threading.active_count() <= before


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    return make_node()


def drain(feed: DataFeed, size: int) -> list[list[Any]]:
    batches = []
    while not feed.should_stop():
        batches.append(feed.next_batch(size))
    return batches


def test_rows_flow_across_partitions_and_only_the_last_batch_is_short(node: Node) -> None:
    def feed_two() -> None:
        node.feed([(i, "a") for i in range(10)], 0)
        node.feed([(i, "b") for i in range(10, 17)], 1)
        node.hub.on_message({"op": "feed.end", "seq": 0, "final": True, "spec": None})

    fed = node.later(feed_two)
    batches = drain(DataFeed(node.hub), 4)
    fed.result(DEADLINE)
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 1]
    assert [row[0] for batch in batches for row in batch] == list(range(17))
    assert node.uplink.wait("feed.drained", partition=1)["rows"] == 7
    assert node.uplink.wait("feed.drained", partition=1)["node_rows"] == 17


def test_a_feed_task_ends_only_when_its_rows_were_consumed(node: Node) -> None:
    fed = node.later(node.feed, list(range(100)))
    feed = DataFeed(node.hub)
    assert feed.next_batch(99) == list(range(99))
    node.uplink.wait("feed.claim")
    assert not fed.done()
    assert feed.next_batch(1) == [99]
    assert fed.result(DEADLINE) == 100


def test_the_node_holds_no_more_bytes_than_its_budget(make_node: MakeNode) -> None:
    node = make_node(budget=100_000)
    rows = [b"x" * 10_000 for _ in range(100)]
    fed = node.later(node.feed, rows, block_bytes=20_000)
    feed = DataFeed(node.hub)
    most = 0
    for _ in range(100):
        assert len(feed.next_batch(1)) == 1
        most = max(most, node.hub.budget.used)
    assert fed.result(DEADLINE) == 100
    assert 0 < most <= 100_000
    assert node.hub.budget.used == 0


def test_one_row_above_the_budget_is_admitted_alone(make_node: MakeNode) -> None:
    node = make_node(budget=1000)
    fed = node.later(node.feed, [b"x" * 5000, b"y" * 5000])
    feed = DataFeed(node.hub)
    assert [len(row) for row in feed.next_batch(2)] == [5000, 5000]
    assert fed.result(DEADLINE) == 2


def test_closing_tells_open_and_later_feed_tasks(node: Node) -> None:
    fed = node.later(node.feed, list(range(10)))
    feed = DataFeed(node.hub)
    feed.next_batch(3)
    feed.terminate()
    with pytest.raises(NodeClosedError):
        fed.result(DEADLINE)
    with pytest.raises(NodeClosedError):
        node.feed([1], 1)
    assert feed.should_stop()
    assert feed.next_batch(5) == []
    assert node.uplink.wait("feed.closed")["node_rows"] == 3
    node.uplink.wait("feed.discarded", partition=1)


def test_a_closed_node_wakes_a_feed_task_that_waits_for_the_budget(make_node: MakeNode) -> None:
    node = make_node(budget=1000)
    fed = node.later(node.feed, [b"x" * 900_000 for _ in range(20)])
    DataFeed(node.hub).next_batch(1)
    node.hub.close()
    with pytest.raises(NodeClosedError):
        fed.result(DEADLINE)


def test_a_failed_node_tells_its_error(node: Node) -> None:
    fed = node.later(node.feed, list(range(10)))
    DataFeed(node.hub).next_batch(3)
    node.hub.fail(to_wire(NodeFailedError("node worker:0 failed: ValueError: boom", None, "worker:0", "h")))
    for attempt in (fed, node.later(node.feed, [1], 1)):
        with pytest.raises(NodeRefusedError) as caught:
            attempt.result(DEADLINE)
        assert isinstance(caught.value.error, NodeFailedError)
        assert "boom" in str(caught.value.error)
        assert caught.value.error.host == "h"


def test_when_the_process_is_gone_the_supervisor_answers(node: Node) -> None:
    fed = node.later(node.feed, list(range(10)))
    DataFeed(node.hub).next_batch(3)
    # What the kernel does when the process is killed: the accepting thread and the connections end without a word.
    node.hub._stop_writer.send(b"x")
    assert node.hub._thread is not None
    node.hub._thread.join(DEADLINE)
    refusal = Refusal(node.listener, node="worker:0", generation="g1", uplink=node.uplink)
    refusal.start("failed", to_wire(NodeFailedError("killed by signal 9", None, "worker:0", "h", 1, None, 9)))
    for intake in node.hub.intakes():
        intake.shut()
    try:
        for attempt in (fed, node.later(node.feed, [1], 1)):
            with pytest.raises(NodeRefusedError, match="killed by signal 9") as caught:
                attempt.result(DEADLINE)
            assert isinstance(caught.value.error, NodeFailedError)
            assert caught.value.error.signal == 9
        node.uplink.wait("feed.discarded", partition=1)
    finally:
        refusal.stop()


def test_a_gone_node_is_named(node: Node) -> None:
    Path(node.descriptor.socket).unlink()
    with pytest.raises(NodeRefusedError, match="worker:0 is gone"):
        node.feed([1])


def test_who_finds_the_folder_of_a_killed_supervisor_removes_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    folder = tmp_path / "user" / "folder"
    folder.mkdir(parents=True)
    supervisor = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = process_start_time(supervisor.pid)
    left = replace(node.descriptor, socket=str(folder / "node.sock"), supervisor_pid=supervisor.pid, supervisor_started=started)
    hello = Hello(mode=Mode.TRAIN, generation="g1", partition=0, attempt=0, feed_timeout=DEADLINE)
    with pytest.raises(NodeRefusedError, match="is gone"), Feeder(left, hello):
        pass
    assert folder.is_dir()  # the supervisor lives: it removes its folder itself
    supervisor.kill()
    os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
    with pytest.raises(NodeRefusedError, match="is gone"), Feeder(left, hello):
        pass
    supervisor.wait()
    assert not folder.exists()
    assert str(word_of({"SPARK_LOCAL_DIRS": str(tmp_path)}, "g1")).startswith(
        "the node worker:0 was stopped: its supervisor was killed"
    )


def test_a_feed_for_another_cluster_is_refused(node: Node) -> None:
    hello = Hello(mode=Mode.TRAIN, generation="g0", partition=0, attempt=0, feed_timeout=DEADLINE)
    with pytest.raises(NodeRefusedError, match="belongs to the cluster g1"), Feeder(node.descriptor, hello):
        pass


def test_nobody_consuming_is_a_timeout_and_later_attempts_do_not_wait(node: Node) -> None:
    with pytest.raises(NodeRefusedError, match=r"consumed no row for 0\.2 seconds") as caught:
        node.feed(list(range(10)), timeout=0.2)
    assert isinstance(caught.value.error, FeedTimeoutError)
    failed = node.uplink.wait("feed.failed")
    assert failed["error"]["type"] == "FeedTimeoutError"
    # An hour would be waited here if the first timeout were not known.
    with pytest.raises(NodeRefusedError, match="consumed no row"):
        node.feed([1], 1, attempt=0, timeout=3600)
    # A later epoch starts afresh.
    fed = node.later(node.feed, [1], 2, seq=1)
    assert node.uplink.wait("feed.claim", partition=2)
    feed = DataFeed(node.hub)
    while 1 not in feed.next_batch(1):
        pass
    assert fed.result(DEADLINE) == 1


def test_progress_defers_the_timeout(node: Node) -> None:
    feed = DataFeed(node.hub)
    fed = node.later(node.feed, list(range(8)), timeout=1.0)
    for _ in range(8):
        assert len(feed.next_batch(1)) == 1
        threading.Event().wait(0.25)
    assert fed.result(DEADLINE) == 8


def test_a_repeated_attempt_skips_what_was_consumed(node: Node) -> None:
    feed = DataFeed(node.hub)
    with node.feeder() as first:
        for packed in pack_rows(list(range(20)), 1 << 20):
            first.send(packed)
        assert feed.next_batch(5) == [0, 1, 2, 3, 4]
    assert node.uplink.wait("feed.released", partition=0, attempt=0)["rows"] == 5
    again = node.later(node.feed, list(range(20)), attempt=1)
    node.uplink.wait("feed.ask", partition=0, attempt=1)
    node.hub.on_message({"op": "feed.grant", "seq": 0, "partition": 0, "attempt": 1, "rows": 5, "drained": False})
    assert feed.next_batch(15) == list(range(5, 20))
    assert again.result(DEADLINE) == 15


def test_a_repeated_attempt_of_a_drained_partition_sends_nothing(node: Node) -> None:
    again = node.later(node.feed, list(range(20)), attempt=1)
    node.uplink.wait("feed.ask", partition=0, attempt=1)
    node.hub.on_message({"op": "feed.grant", "seq": 0, "partition": 0, "attempt": 1, "rows": 20, "drained": True})
    assert again.result(DEADLINE) == 0


def test_a_released_attempt_loses_its_unconsumed_rows(node: Node) -> None:
    feed = DataFeed(node.hub)
    fed = node.later(node.feed, list(range(20)))
    assert feed.next_batch(5) == [0, 1, 2, 3, 4]
    node.hub.on_message({"op": "feed.release", "seq": 0, "partition": 0, "attempt": 0})
    assert node.uplink.wait("feed.released", partition=0)["rows"] == 5
    with pytest.raises(FeedError, match="let go of partition 0"):
        fed.result(DEADLINE)
    node.hub.on_message({"op": "feed.end", "seq": 0, "final": True, "spec": None})
    assert feed.next_batch(5) == []
    assert node.hub.budget.used == 0


def test_inference_gives_one_result_per_row_in_order_and_never_mixes_partitions(node: Node) -> None:
    sizes = []

    def serve() -> None:
        feed = DataFeed(node.hub, train_mode=False)
        while not feed.should_stop():
            batch = feed.next_batch(4)
            sizes.append(len(batch))
            feed.batch_results([row * 2 for row in batch])

    server = node.later(serve)
    answers = [node.later(node.infer, list(range(start, start + 10)), index) for index, start in enumerate((0, 100))]
    answers.append(node.later(node.infer, [], 2))
    results = [answer.result(DEADLINE) for answer in answers]
    assert results == [[2 * i for i in range(10)], [2 * i for i in range(100, 110)], []]
    node.hub.on_message({"op": "feed.end_of_feed"})
    server.result(DEADLINE)
    assert sizes == [4, 4, 2, 4, 4, 2, 0]


def test_results_above_the_budget_arrive(make_node: MakeNode) -> None:
    node = make_node(budget=1000)
    answer = node.later(node.infer, list(range(50)))
    feed = DataFeed(node.hub, train_mode=False)
    for _ in range(5):
        batch = feed.next_batch(10)
        feed.batch_results(np.zeros((len(batch), 100_000), dtype=np.float32) + np.array(batch, dtype=np.float32)[:, None])
    results = answer.result(DEADLINE)
    assert [row[7] for row in results] == list(range(50))


def test_a_result_too_few_is_an_error_at_once_on_both_sides(node: Node) -> None:
    answer = node.later(node.infer, list(range(20)))
    feed = DataFeed(node.hub, train_mode=False)
    feed.batch_results(feed.next_batch(10))
    batch = feed.next_batch(10)
    with pytest.raises(ResultCountError, match="9 results for 10 rows: node worker:0, batch 2"):
        feed.batch_results(batch[:-1])
    with pytest.raises(NodeRefusedError, match="9 results for 10 rows"):
        answer.result(DEADLINE)
    assert node.uplink.wait("feed.failed")["error"]["type"] == "ResultCountError"


def test_an_inference_task_that_ends_early_leaves_no_row_behind(node: Node) -> None:
    feed = DataFeed(node.hub, train_mode=False)
    with node.feeder(mode=Mode.INFER) as first:
        for packed in pack_rows(list(range(10)), 1 << 20):
            first.send(packed)
        assert len(feed.next_batch(2)) == 2
    # The next task is welcome only when nothing of the first is left.
    with node.feeder(mode=Mode.INFER) as second:
        feed.batch_results([0, 0])
        for packed in pack_rows([70, 71], 1 << 20):
            second.send(packed)
        second.finish()
        batch = feed.next_batch(4)
        feed.batch_results(batch)
        assert batch == [70, 71]
        assert [row for kind, payload in second.remaining_results() for row in _rows_of(kind, payload)] == [70, 71]


def test_input_mapping_gives_columns_in_lexicographic_order(node: Node) -> None:
    fed = node.later(node.feed, [(1.0, "a"), (2.0, "b")])
    feed = DataFeed(node.hub, input_mapping={"y": "label", "x": "image"})
    assert feed.input_tensors == ["image", "label"]
    assert feed.next_batch(2) == {"image": [1.0, 2.0], "label": ["a", "b"]}
    fed.result(DEADLINE)


@pytest.mark.parametrize("width", [1, 3])
def test_columns_of_arrays_are_lists_of_arrays_in_a_mapped_batch(node: Node, width: int) -> None:
    rows = [(np.full(width, float(index)), index) for index in range(5)]
    fed = node.later(node.feed, rows, block_bytes=64)  # several blocks in one batch
    batch = DataFeed(node.hub, input_mapping={"x": "image", "y": "label"}).next_batch(5)
    fed.result(DEADLINE)
    assert {name: type(column) for name, column in batch.items()} == {"image": list, "label": list}
    assert [image.tolist() for image in batch["image"]] == [[float(index)] * width for index in range(5)]
    assert batch["label"] == list(range(5))


def test_a_mapping_that_does_not_fit_says_so(node: Node) -> None:
    fed = node.later(node.feed, [(1.0, "a"), (2.0, "b")])
    with pytest.raises(FeedError, match="names 1 columns, but a row has 2 fields"):
        DataFeed(node.hub, input_mapping={"x": "image"}).next_batch(2)
    fed.result(DEADLINE)


def test_epochs_end_in_order_even_when_the_rows_of_the_next_come_first(node: Node) -> None:
    fed = node.later(node.feed, [7], seq=2)
    assert [node.hub.inbox.take(1).value for _ in range(2)] == ["epoch", "epoch"]
    node.hub.on_message({"op": "feed.end", "seq": 0, "final": False, "spec": None})
    node.hub.on_message({"op": "feed.end", "seq": 1, "final": False, "spec": None})
    assert DataFeed(node.hub).next_batch(1) == [7]
    assert fed.result(DEADLINE) == 1


def test_only_the_queues_input_and_output_exist(node: Node) -> None:
    with pytest.raises(ConfigError, match="'inputs' does not exist"):
        DataFeed(node.hub, qname_in="inputs")
    with pytest.raises(ConfigError, match=r"ctx\.mgr"):
        DataFeed(None)  # type: ignore[arg-type]


def test_arrays_arrive_as_arrays_and_tuples_as_tuples(node: Node) -> None:
    rows = [(np.full(784, i, dtype=np.float32), i) for i in range(50)]
    fed = node.later(node.feed, rows)
    batch = DataFeed(node.hub).next_batch(50)
    fed.result(DEADLINE)
    assert [type(row) for row in batch] == [tuple] * 50
    assert all(row[0].dtype == np.float32 and row[0][3] == index and row[1] == index for index, row in enumerate(batch))


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 0.25), (25, 0.25), (1000, 10.0)])
def test_the_more_nodes_there_are_the_less_often_each_reports(nodes: int, seconds: float) -> None:
    assert report_interval_s(nodes) == seconds
