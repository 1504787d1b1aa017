"""The number of steps that all nodes make in an epoch: the driver's side."""

from __future__ import annotations

from typing import Any

import pytest

from tfos_core.errors import FeedError
from tfos_core.feed.agreement import Agreements


class Table:
    """Nodes speak, and what was granted is kept as (epoch, steps, final)."""

    def __init__(self, *nodes: str) -> None:
        self.agreements = Agreements(nodes)
        self.granted: list[tuple[int, int, bool]] = []
        self.problem: FeedError | None = None

    def tell(self, node: str, steps: int, *, ended: bool = False, seq: int = 0, rows: int | None = None, **more: Any) -> None:
        message = {"seq": seq, "steps": steps, "rows": steps * 10 if rows is None else rows, "batch_size": 10, "ended": ended}
        grants, problem = self.agreements.told(node, message | more)
        self.granted += [(grant.seq, grant.steps, grant.final) for grant in grants]
        self.problem = self.problem or problem

    def left(self, node: str) -> None:
        self.granted += [(grant.seq, grant.steps, grant.final) for grant in self.agreements.left(node)]


@pytest.fixture
def table() -> Table:
    return Table("a", "b")


def test_what_all_nodes_can_do_is_granted_at_once_and_nothing_twice(table: Table) -> None:
    table.tell("a", 5)
    assert table.granted == []
    table.tell("b", 3)
    table.tell("a", 6)
    table.tell("b", 4)
    assert table.granted == [(0, 3, False), (0, 4, False)]


def test_the_node_with_least_ends_the_epoch_for_all(table: Table) -> None:
    table.tell("a", 5)
    table.tell("b", 3, ended=True)
    assert table.granted == [(0, 3, True)]
    table.tell("a", 9, ended=True)
    assert table.granted == [(0, 3, True)]


def test_a_node_that_has_ended_with_more_does_not_end_the_others(table: Table) -> None:
    table.tell("a", 5, ended=True)
    table.tell("b", 3)
    table.tell("b", 8)
    assert table.granted == [(0, 3, False), (0, 5, True)]


def test_not_one_step_for_everybody_is_an_error_that_names_the_node(table: Table) -> None:
    table.tell("a", 100)
    table.tell("b", 0, ended=True, rows=0)
    assert table.granted == []
    assert table.problem is not None
    assert "b got no row" in table.problem.message
    assert "a 1000" in table.problem.message
    assert "repartition" in str(table.problem.hint)


def test_less_than_a_batch_is_the_same_error(table: Table) -> None:
    table.tell("a", 100)
    table.tell("b", 0, ended=True, rows=7)
    assert table.problem is not None
    assert "b got only 7 rows of an epoch, less than a batch of 10" in table.problem.message


def test_epochs_without_a_step_can_be_allowed(table: Table) -> None:
    table.tell("a", 100, allow_empty=True)
    table.tell("b", 0, ended=True, allow_empty=True)
    assert table.problem is None
    assert table.granted == [(0, 0, True)]


def test_one_node_may_be_in_the_next_epoch_already(table: Table) -> None:
    table.tell("a", 2, ended=True)
    table.tell("b", 2, ended=True)
    table.tell("a", 4, seq=1)
    table.tell("b", 1, seq=1)
    assert table.granted == [(0, 2, True), (1, 1, False)]


def test_nobody_goes_on_without_a_node_that_has_returned(table: Table) -> None:
    table.tell("a", 5)
    table.tell("b", 3)
    table.left("b")
    assert table.granted == [(0, 3, False), (0, 3, True)]
    table.tell("a", 5, seq=1)
    assert table.granted[2:] == [(1, 0, True)]
    assert table.problem is None


def test_a_node_that_calls_next_batch_is_not_waited_for(table: Table) -> None:
    table.tell("a", 5)
    table.tell("b", 0, out=True)
    table.tell("a", 7)
    table.tell("a", 8, ended=True)
    assert table.granted == [(0, 5, False), (0, 7, False), (0, 8, True)]
    assert table.problem is None


def test_three_nodes_agree_on_the_least() -> None:
    table = Table("a", "b", "c")
    for node, steps in (("a", 100), ("b", 9), ("c", 40)):
        table.tell(node, steps)
    table.tell("c", 41, ended=True)
    table.tell("b", 30, ended=True)
    assert table.granted == [(0, 9, False), (0, 30, True)]
