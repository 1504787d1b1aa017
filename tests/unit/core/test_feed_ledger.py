"""The ledger is pure: events in, instructions out."""

from __future__ import annotations

from tfos_core.feed.ledger import Conflict, Grant, Ledger, Release, SendEnd

SPEC = {"form": "single", "tensors": []}


def ledger(partitions: int, *nodes: str) -> Ledger:
    return Ledger(seq=0, partitions=partitions, nodes=nodes)


def ends(instructions: list[object]) -> list[str]:
    return [instruction.node for instruction in instructions if isinstance(instruction, SendEnd)]


def test_a_node_ends_as_soon_as_no_row_can_reach_it() -> None:
    book = ledger(3, "a", "b")
    book.described(SPEC)
    assert book.claimed("a", 0, 0) == []
    assert book.claimed("b", 1, 0) == []
    assert book.drained("b", 1, 0, 100) == []
    assert book.drained("a", 0, 0, 100) == []
    # The last partition is claimed: b can get no more, although a has not consumed it yet.
    assert ends(book.claimed("a", 2, 0)) == ["b"]
    assert ends(book.drained("a", 2, 0, 50)) == ["a"]
    assert book.rows_per_node == {"a": 150, "b": 100}


def test_an_end_is_sent_once() -> None:
    book = ledger(1, "a")
    book.claimed("a", 0, 0)
    assert ends(book.drained("a", 0, 0, 5)) == ["a"]
    assert book.drained("a", 0, 0, 5) == []
    assert book.job_ended() == []
    assert book.rows_per_node == {"a": 5}


def test_a_node_without_rows_waits_for_the_element_structure() -> None:
    book = ledger(1, "a", "b")
    assert book.claimed("a", 0, 0) == []
    assert book.described(SPEC) == [SendEnd(node="b", spec=SPEC)]
    assert book.drained("a", 0, 0, 9) == [SendEnd(node="a", spec=SPEC)]


def test_without_any_row_every_node_ends_without_structure() -> None:
    book = ledger(1, "a", "b")
    book.claimed("a", 0, 0)
    assert book.drained("a", 0, 0, 0) == [SendEnd(node="a", spec=None), SendEnd(node="b", spec=None)]


def test_a_repeated_attempt_skips_what_the_released_one_consumed() -> None:
    book = ledger(1, "a", "b")
    book.claimed("a", 0, 0)
    assert book.released("a", 0, 0, 7) == []
    grant, end = book.asked("b", 0, 1)
    assert grant == Grant(node="b", partition=0, attempt=1, rows=7, drained=False)
    assert end == SendEnd(node="a", spec=None)
    assert ends(book.drained("b", 0, 1, 3)) == ["b"]
    assert book.rows_per_node == {"a": 7, "b": 3}


def test_the_holder_lets_go_before_another_attempt_begins() -> None:
    book = ledger(1, "a", "b")
    book.claimed("a", 0, 0)
    assert book.asked("b", 0, 1) == [Release(node="a", partition=0, attempt=0)]
    # a has consumed rows, so it knows what they look like, and none is left for it.
    grant = Grant(node="b", partition=0, attempt=1, rows=4, drained=False)
    assert book.released("a", 0, 0, 4) == [grant, SendEnd(node="a", spec=None)]


def test_a_holder_that_drains_meanwhile_leaves_nothing_to_do() -> None:
    book = ledger(1, "a", "b")
    book.claimed("a", 0, 0)
    book.asked("b", 0, 1)
    assert Grant(node="b", partition=0, attempt=1, rows=10, drained=True) in book.drained("a", 0, 0, 10)
    assert book.asked("b", 0, 2) == [Grant(node="b", partition=0, attempt=2, rows=10, drained=True)]


def test_no_node_ends_while_a_released_partition_waits_for_its_next_attempt() -> None:
    book = ledger(1, "a", "b")
    book.described(SPEC)
    assert ends(book.claimed("a", 0, 0)) == ["b"]
    book = ledger(2, "a", "b")
    book.described(SPEC)
    book.claimed("a", 0, 0)
    book.released("a", 0, 0, 0)
    assert ends(book.claimed("b", 1, 0)) == []
    assert ends(book.asked("b", 0, 1)) == ["a"]


def test_an_attempt_that_asks_before_any_claim_begins_at_the_first_row() -> None:
    book = ledger(2, "a")
    assert book.asked("a", 0, 1) == [Grant(node="a", partition=0, attempt=1, rows=0, drained=False)]
    assert book.claimed("a", 0, 0) == [Conflict(partition=0, nodes=("a", "a"))]


def test_a_stage_that_runs_again_is_a_conflict() -> None:
    book = ledger(2, "a", "b")
    book.claimed("a", 0, 0)
    book.drained("a", 0, 0, 5)
    assert book.claimed("b", 0, 0) == [Conflict(partition=0, nodes=("a", "b"))]


def test_what_comes_to_a_closed_node_is_discarded_and_still_ends_the_others() -> None:
    book = ledger(3, "a", "b")
    book.described(SPEC)
    book.claimed("a", 0, 0)
    book.claimed("b", 1, 0)
    assert book.node_closed("a") == []
    assert ends(book.discarded("a", 2)) == ["a"]
    assert ends(book.drained("b", 1, 0, 5)) == ["b"]
    assert book.partitions_discarded == 2
    assert book.partitions_done == 3


def test_a_job_that_ended_early_discards_the_rest() -> None:
    book = ledger(5, "a")
    book.claimed("a", 0, 0)
    assert ends(book.job_ended()) == ["a"]
    assert book.partitions_discarded == 5


def test_live_counts_never_go_back() -> None:
    book = ledger(2, "a")
    book.node_rows("a", 30)
    book.node_rows("a", 20)
    book.drained("a", 0, 0, 10)
    assert book.rows_per_node == {"a": 30}
