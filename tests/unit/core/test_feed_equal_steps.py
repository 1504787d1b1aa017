"""Nodes that make the same number of steps: real hubs and the driver's agreement, without Spark and sockets."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from testbed.waiting import poll_until

from tfos_core.errors import FeedError
from tfos_core.feed import equal_steps
from tfos_core.feed.agreement import Agreements, GrantSteps
from tfos_core.feed.blocks import decode
from tfos_core.feed.datafeed import DataFeed
from tfos_core.feed.dataset import BatchSource
from tfos_core.feed.hub import FeedHub
from tfos_core.feed.inbox import Stream
from tfos_core.feed.packing import pack_list
from tfos_core.feed.totals import NodeTotals

DEADLINE = 20.0
SPEC = {"form": "single", "tensors": [{"name": "row", "dtype": "float32", "shape": []}]}


class Driver:
    """What the coordinator does with the messages of `nodes` hubs; every partition is one block, or several of `block` rows."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.names = [f"worker:{index}" for index in range(nodes)]
        self.agreements = Agreements(self.names)
        self.totals = NodeTotals(self.names)
        self.problem: FeedError | None = None
        self.messages = 0
        self.closing = contextlib.ExitStack()
        self.hubs: dict[str, FeedHub] = {}
        for name in self.names:
            one, other = socket.socketpair()
            self.closing.enter_context(one)
            self.closing.enter_context(other)
            uplink = Uplink(self, name)
            self.hubs[name] = FeedHub(
                one, node=name, generation="g", uplink=uplink, progress_path=folder / f"{name}.progress", equal_steps=True
            )
            self.closing.callback(self.hubs[name].stop)

    def hear(self, node: str, message: dict[str, Any]) -> None:
        self.totals.note(node, message)
        grants: list[GrantSteps] = []
        if message["op"] == "feed.steps":
            self.messages += 1
            grants, problem = self.agreements.told(node, message)
            self.problem = self.problem or problem
        elif message["op"] == "feed.closed":
            grants = self.agreements.left(node)
        for grant in grants:
            for hub in self.hubs.values():
                hub.on_message(grant.to_message())

    def put(self, node: int, rows: int, seq: int = 0, block: int = 1000, on_drained: Any = lambda _: None) -> None:
        """What an intake does with a partition."""
        hub = self.hubs[self.names[node]]
        stream = Stream(seq=seq, partition=0, attempt=0, infer=False, on_drained=on_drained)
        hub.inbox.end_epochs_before(seq)
        for start in range(0, rows, block):
            packed = pack_list([float(i) for i in range(start, min(start + block, rows))])
            data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in packed.buffers)
            payload = np.frombuffer(bytearray(data), dtype=np.uint8)
            hub.first_block(0, seq, functools.partial(decode, packed.kind, payload))
            assert hub.budget.reserve(len(data))
            hub.inbox.put(stream, packed.kind, payload, len(data))
        hub.inbox.finish(stream)

    def end(self, seq: int = 0, final: bool = False) -> None:
        for hub in self.hubs.values():
            hub.on_message({"op": "feed.end", "seq": seq, "final": final, "spec": SPEC})

    def source(self, node: int, size: int, **options: Any) -> BatchSource:
        chosen: dict[str, Any] = {"mapping": None, "all_epochs": False, "drop_remainder": False} | options
        return BatchSource(hub=self.hubs[self.names[node]], batch_size=size, spec=SPEC, **chosen)

    def sizes(self, size: int, **options: Any) -> list[list[int]]:
        """One iteration on every node at a time: the sizes of their batches."""

        def iterate(node: int) -> list[int]:
            return [len(batch) for batch in self.source(node, size, **options)()]

        with ThreadPoolExecutor(len(self.names)) as pool:
            return [future.result(DEADLINE) for future in [pool.submit(iterate, node) for node in range(len(self.names))]]


class Uplink:
    def __init__(self, driver: Driver, node: str) -> None:
        self._driver, self._node = driver, node

    def send(self, message: dict[str, Any]) -> None:
        self._driver.hear(self._node, message)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Driver] = []

    def start(nodes: int = 2) -> Driver:
        made.append(Driver(tmp_path, nodes))
        return made[-1]

    yield start
    for driver in made:
        driver.closing.close()


@pytest.mark.parametrize(("rows", "steps"), [((10, 1000), 2), ((1000, 10), 2), ((64, 64), 16), ((7, 5), 1)])
def test_all_nodes_make_as_many_steps_as_the_poorest_has_batches(make: Any, rows: tuple[int, int], steps: int) -> None:
    driver = make()
    for node, count in enumerate(rows):
        driver.put(node, count, block=33)
    driver.end(final=True)
    assert driver.sizes(4) == [[4] * steps] * 2
    left = {name: count - 4 * steps for name, count in zip(driver.names, rows, strict=True) if count - 4 * steps}
    assert driver.totals.left_over == left
    assert driver.totals.steps == dict.fromkeys(driver.names, steps)
    assert driver.sizes(4) == [[], []]


def test_three_nodes_and_several_epochs(make: Any) -> None:
    driver = make(3)
    for seq, rows in enumerate([(50, 20, 90), (10, 10, 10), (95, 94, 93)]):
        for node, count in enumerate(rows):
            driver.put(node, count, seq=seq)
        driver.end(seq, final=seq == 2)
        assert driver.sizes(10) == [[10] * (min(rows) // 10)] * 3
    assert driver.totals.steps == dict.fromkeys(driver.names, 2 + 1 + 9)
    assert sum(driver.totals.left_over.values()) == (160 - 60) + 0 + (282 - 270)


def test_all_epochs_in_one_iteration_are_cut_one_by_one(make: Any) -> None:
    driver = make()
    for seq in range(2):
        driver.put(0, 25, seq=seq)
        driver.put(1, 12, seq=seq)
        driver.end(seq, final=seq == 1)
    assert driver.sizes(5, all_epochs=True) == [[5] * 4] * 2


def test_rows_that_come_while_nodes_step_are_granted_ahead(make: Any) -> None:
    driver = make()
    batches = [driver.source(node, 10)() for node in range(2)]
    driver.put(0, 100)
    driver.put(1, 100)
    with ThreadPoolExecutor(2) as pool:
        firsts = [pool.submit(next, batch) for batch in batches]
        assert [len(first.result(DEADLINE)) for first in firsts] == [10, 10]
    # Both in one thread: a node that had to wait for a word that the other one says in its next step would wait for ever.
    for _ in range(8):
        assert [len(next(batch)) for batch in batches] == [10, 10]
    driver.end(final=True)
    with ThreadPoolExecutor(2) as pool:
        rest = [pool.submit(list, batch) for batch in batches]
        assert [len(one.result(DEADLINE)) for one in rest] == [1, 1]


def test_stacks_are_no_more_in_advance_than_was_used(make: Any) -> None:
    driver = make(1)
    driver.put(0, 1600)
    driver.end(final=True)
    sizes = [len(stack) for stack in driver.source(0, 4).stacks()]
    assert (sum(sizes), max(sizes)) == (400, 16)
    for number in range(2, len(sizes)):
        assert sizes[number - 1] + sizes[number] <= max(sum(sizes[: number - 1]), 2)


def test_stacks_of_a_slow_program_are_small_by_the_time_of_the_stack_before(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(equal_steps.time, "monotonic", lambda: clock[0])
    driver = make(1)
    driver.put(0, 400)
    driver.end(final=True)
    sizes = [0]
    for stack in driver.source(0, 4).stacks():
        # While one is ready, the one before it is used; twelve steps are ahead, of which half may be taken at once.
        clock[0] += 0.004 * sizes[-1]
        sizes.append(len(stack))
    assert (sum(sizes), max(sizes)) == (100, 6)


def test_messages_are_fewer_than_steps_when_steps_are_fast(make: Any) -> None:
    driver = make()
    for node in range(2):
        driver.put(node, 20_000, block=20)
    driver.end(final=True)
    assert driver.sizes(10) == [[10] * 2000] * 2
    assert driver.messages < 800, "2 nodes made 2000 steps and took 1000 blocks each"


def test_a_node_takes_no_more_than_it_needs_while_another_one_has_not_begun(make: Any) -> None:
    """A partition that was taken to its end lets the executor fetch the next one, which the other node should get."""
    driver = make()
    drained: list[Stream] = []
    driver.put(0, 1000, on_drained=drained.append)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, driver.source(0, 10)())
        poll_until(lambda: driver.messages, DEADLINE, what="the node says how many batches it has")
        assert drained == []
        assert driver.hubs["worker:0"]._rows == {0: 20}
        driver.put(1, 10)
        driver.end(final=True)
        assert driver.source(1, 10)().__next__().shape == (10,)
        assert len(waiting.result(DEADLINE)) == 10


def test_an_abandoned_iteration_loses_no_row(make: Any) -> None:
    driver = make()
    for node in range(2):
        driver.put(node, 40, block=7)
    driver.end(final=True)
    with ThreadPoolExecutor(2) as pool:
        firsts = [pool.submit(next, driver.source(node, 10)()) for node in range(2)]
        assert [len(first.result(DEADLINE)) for first in firsts] == [10, 10]
    assert driver.sizes(10) == [[10] * 3] * 2
    assert driver.totals.left_over == {}


def test_a_node_without_rows_stops_the_feed_with_its_name(make: Any) -> None:
    driver = make()
    driver.put(0, 40)
    driver.end(final=True)
    with ThreadPoolExecutor(2) as pool:
        iterations = [pool.submit(list, driver.source(node, 10)()) for node in range(2)]
        poll_until(lambda: driver.problem, DEADLINE, what="the driver sees that no step can be made")
        assert not any(iteration.done() for iteration in iterations)
        # The cluster stops its nodes then.
        for hub in driver.hubs.values():
            hub.close()
        assert [iteration.result(DEADLINE) for iteration in iterations] == [[], []]
    assert driver.problem is not None
    assert "worker:1 got no row" in driver.problem.message


def test_a_node_without_rows_can_be_allowed(make: Any) -> None:
    driver = make()
    driver.put(0, 40)
    driver.end(final=True)
    assert driver.sizes(10, allow_empty=True) == [[], []]
    assert driver.totals.left_over == {"worker:0": 40}


def test_next_batch_gets_every_row_and_is_waited_for_by_nobody(make: Any) -> None:
    driver = make()
    driver.put(0, 40)
    driver.put(1, 25)
    driver.end(final=True)
    feed = DataFeed(driver.hubs["worker:1"])
    taken = 0
    while not feed.should_stop():
        taken += len(feed.next_batch(10))
    assert taken == 25
    with ThreadPoolExecutor(1) as pool:
        assert [len(batch) for batch in pool.submit(list, driver.source(0, 10)()).result(DEADLINE)] == [10] * 4
    for hub in driver.hubs.values():
        hub.close()
    assert driver.totals.steps == {"worker:0": 4, "worker:1": 3}


def test_a_node_that_returns_early_ends_the_steps_of_the_others(make: Any) -> None:
    driver = make()
    batches = [driver.source(node, 10)() for node in range(2)]
    driver.put(0, 100)
    driver.put(1, 50)
    with ThreadPoolExecutor(2) as pool:
        firsts = [pool.submit(next, batch) for batch in batches]
        assert [len(first.result(DEADLINE)) for first in firsts] == [10, 10]
        driver.hubs["worker:1"].close()
        driver.end(final=True)
        assert len(pool.submit(list, batches[0]).result(DEADLINE)) < 5, "no more than was granted by then"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_in_whatever_order_all_make_the_steps_of_the_poorest(make: Any, seed: int) -> None:
    chance = random.Random(seed)
    nodes, size, stacked = chance.choice([1, 2, 3]), chance.choice([1, 3, 10, 64]), chance.random() < 0.5
    # Rows of every partition, by node and epoch.
    epochs = [[[chance.randrange(200) for _ in range(chance.choice([0, 1, 1, 4]))] for _ in range(nodes)] for _ in range(2)]
    driver = make(nodes)

    def feed() -> None:
        for seq, parts in enumerate(epochs):
            for node, rows in chance.sample(
                [(node, rows) for node, each in enumerate(parts) for rows in each], sum(map(len, parts))
            ):
                driver.put(node, rows, seq=seq, block=chance.choice([5, 50, 1000]))
            driver.end(seq, final=seq == 1)

    def iterate(node: int) -> list[int]:
        source = driver.source(node, size, allow_empty=True)
        return [sum(len(batch) if stacked else 1 for batch in (source.stacks() if stacked else source())) for _ in epochs]

    with ThreadPoolExecutor(nodes + 1) as pool:
        feeding = pool.submit(feed)
        made = [future.result(DEADLINE) for future in [pool.submit(iterate, node) for node in range(nodes)]]
        feeding.result(DEADLINE)
    expected = [min(sum(rows) // size for rows in parts) for parts in epochs]
    assert made == [expected] * nodes
    for node, name in enumerate(driver.names):
        assert driver.totals.left_over.get(name, 0) == sum(sum(parts[node]) for parts in epochs) - sum(expected) * size


def test_much_that_was_left_over_is_a_warning_that_says_what_to_do() -> None:
    totals = NodeTotals(["a", "b"])
    totals.note("a", {"left_over": 90, "steps_done": 1})
    (warning,) = totals.warnings(110)
    assert "90 of 110 rows" in warning.message
    assert "repartition" in warning.hint
    assert list(totals.warnings(10_000)) == []
