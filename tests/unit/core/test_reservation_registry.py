from __future__ import annotations

import base64
import json
import threading

import pytest

from tfos_core.errors import ConfigError, DuplicateNodeError, ProtocolError, ReservationError
from tfos_core.reservation import NodeRecord, Reservations
from tfos_core.reservation.admission import Admission
from tfos_core.reservation.record import deflated, inflated
from tfos_core.topology import Role

GOOD = NodeRecord(executor_id=3, role=Role.WORKER, index=1, host="h1", port=2222, pid=77, tb_port=6006, generation="g")


def record(executor_id: int, index: int, role: Role = Role.WORKER) -> NodeRecord:
    return NodeRecord(executor_id=executor_id, role=role, index=index, host=f"host{executor_id}", port=2000 + executor_id, pid=50)


def test_a_record_round_trips_through_json_values() -> None:
    data = GOOD.to_dict()
    assert type(data["role"]) is str
    assert NodeRecord.from_dict(data) == GOOD
    assert GOOD.name == "worker:1"


def test_a_record_needs_no_tensorboard_and_no_generation() -> None:
    data = {key: value for key, value in GOOD.to_dict().items() if key not in ("tb_port", "generation")}
    assert NodeRecord.from_dict(data).tb_port is None
    assert NodeRecord.from_dict(data).generation == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("executor_id", -1), ("executor_id", "0"), ("executor_id", True), ("executor_id", None), ("executor_id", 1.0),
        ("role", "boss"), ("role", ["worker"]), ("role", None), ("index", -1), ("index", 2**40), ("host", ""), ("host", 5),
        ("host", "x" * 300), ("host", "a\nb"), ("port", 65536), ("port", -1), ("pid", "x"), ("tb_port", 0), ("tb_port", "1"),
        ("generation", 5), ("generation", "x" * 201), ("colour", "red"),
    ],
)  # fmt: skip
def test_a_record_with_a_bad_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=field):
        NodeRecord.from_dict(GOOD.to_dict() | {field: value})


@pytest.mark.parametrize("data", [None, [], "worker:0", 5])
def test_a_record_is_an_object(data: object) -> None:
    with pytest.raises(ProtocolError, match="is a JSON object"):
        NodeRecord.from_dict(data)


def test_the_records_of_many_nodes_travel_in_a_fifth_of_their_text() -> None:
    records = [record(number, number).to_dict() for number in range(1000)]
    message = {"op": "cluster", **deflated(records)}
    assert inflated(message) == records
    assert 5 * len(json.dumps(message)) < len(json.dumps(records))


def test_records_that_can_not_be_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = deflated([GOOD.to_dict()])["deflated"]
    for bad in (None, 5, "", "!", good[:-8], base64.b64encode(b"abc").decode(), deflated([])["deflated"][4:]):
        with pytest.raises(ProtocolError, match="'cluster' without readable nodes"):
            inflated({"op": "cluster", "deflated": bad})
    monkeypatch.setattr("tfos_core.reservation.record._MOST_TEXT_BYTES", 1000)
    with pytest.raises(ProtocolError, match="far too long"):
        inflated({"op": "cluster", **deflated([{"host": "x" * 2000}])})


def test_reservations_count_down_and_come_in_the_order_of_executors() -> None:
    reservations = Reservations(2)
    assert (reservations.done(), reservations.remaining()) == (False, 2)
    reservations.add(record(1, 1))
    reservations.add(record(0, 0).to_dict())
    assert (reservations.done(), reservations.remaining()) == (True, 0)
    assert [node.executor_id for node in reservations.get()] == [0, 1]


def test_get_gives_a_copy() -> None:
    reservations = Reservations(2)
    reservations.get().append(record(0, 0))
    assert reservations.remaining() == 2


@pytest.mark.parametrize("again", [record(5, 0), record(0, 7), record(0, 0)], ids=["same name", "same executor", "same both"])
def test_a_duplicate_is_refused_with_both_identities(again: NodeRecord) -> None:
    reservations = Reservations(3)
    first = record(0, 0)
    reservations.add(first)
    with pytest.raises(DuplicateNodeError) as caught:
        reservations.add(again)
    assert first.identity in str(caught.value)
    assert again.identity in str(caught.value)
    assert reservations.get() == [first]


def test_a_node_nobody_expects_is_refused() -> None:
    with pytest.raises(ReservationError, match=r"worker:9 .* expects ps:0, worker:0"):
        Reservations(2, expected=["ps:0", "worker:0"]).add(record(9, 9))


def test_one_node_too_many_is_refused() -> None:
    reservations = Reservations(1)
    reservations.add(record(0, 0))
    with pytest.raises(ReservationError, match="all 1 nodes already did"):
        reservations.add(record(1, 1))


@pytest.mark.parametrize(("required", "expected"), [(0, ()), (-1, ()), (2, ("worker:0",)), (2, ("worker:0", "worker:0"))])
def test_counts_that_can_not_work_are_refused(required: int, expected: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        Reservations(required, expected=expected)


def test_the_timeout_error_names_the_missing() -> None:
    reservations = Reservations(4, expected=["ps:0", "worker:0", "worker:1", "worker:2"])
    reservations.add(record(0, 0, Role.PS))
    reservations.add(record(1, 0))
    error = reservations.timeout_error(600)
    assert str(error) == "2 of 4 nodes did not register within 600 s: worker:1, worker:2"
    assert error.missing == ("worker:1", "worker:2")
    assert "reservation_timeout" in str(error.hint)


def test_the_timeout_error_without_names_says_who_is_there() -> None:
    reservations = Reservations(2)
    assert str(reservations.timeout_error(0.5)) == "2 of 2 nodes did not register within 0.5 s"
    reservations.add(record(0, 0))
    assert str(reservations.timeout_error(5)) == "1 of 2 nodes did not register within 5 s: worker:0 is there"


def test_wait_is_woken_by_the_last_node() -> None:
    reservations = Reservations(1)
    assert not reservations.wait(0)
    outcome: list[bool] = []
    waiter = threading.Thread(target=lambda: outcome.append(reservations.wait(30)))
    waiter.start()
    reservations.add(record(0, 0))
    waiter.join(10)
    assert outcome == [True]


def admission() -> Admission[str]:
    return Admission(limit=2, time_limit_s=5, grace_s=1)


def test_strangers_are_overdue_after_their_time() -> None:
    strangers = admission()
    assert strangers.next_change(0) is None
    strangers.add("a", 0)
    strangers.add("b", 2)
    assert strangers.overdue(4.9) == []
    assert strangers.overdue(5) == ["a"]
    strangers.discard("a")
    assert strangers.next_change(5) == 2
    assert strangers.overdue(7) == ["b"]


def test_a_host_with_more_than_half_of_the_places_makes_room_first_and_soon() -> None:
    strangers: Admission[str] = Admission(limit=4, time_limit_s=5, grace_s=1)
    strangers.add("node", 0, "honest")
    for name in ("a", "b", "c"):
        strangers.add(name, 0.5, "crowd")
    assert strangers.replaceable(0.5) is None
    assert strangers.next_change(0.5) == pytest.approx(0.05)
    assert strangers.replaceable(0.56) == "a"
    strangers.discard("a")
    assert strangers.has_room()
    strangers.add("other", 0.6, "honest")
    assert strangers.replaceable(0.9) is None  # nobody has more than half: in the order of time, after the whole grace
    assert strangers.replaceable(1) == "node"
    for name in ("node", "b", "c", "other", "other"):
        strangers.discard(name)
    assert strangers.next_change(9) is None


def test_the_longest_waiting_stranger_makes_room_once_it_had_its_grace() -> None:
    strangers = admission()
    strangers.add("a", 0, "one host")
    assert strangers.has_room()
    assert strangers.replaceable(4) is None
    strangers.add("b", 0.5, "another")
    assert not strangers.has_room()
    assert strangers.replaceable(0.9) is None
    assert strangers.next_change(0.9) == pytest.approx(0.1)
    assert strangers.replaceable(1) == "a"
    strangers.discard("a")
    assert strangers.has_room()
