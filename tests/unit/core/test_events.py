"""Events and their JSON lines."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from tfos_core import events
from tfos_core.event_line import VERSION
from tfos_core.events import EVENT_TYPES, Event, Result, parse_line, to_line

CONTRACT = {
    "submitted",
    "driver_started",
    "reservation_server",
    "node_registered",
    "reservation_waiting",
    "cluster_ready",
    "tensorboard",
    "feed_progress",
    "feed_finished",
    "node_finished",
    "node_failed",
    "shutdown_started",
    "shutdown_finished",
    "result",
}

SAMPLES: dict[str, Any] = {
    "Any": {"accuracy": 0.97},
    "tuple[Mapping[str, Any], ...]": ({"index": 0, "ok": True},),
    "str": "some text, with \u00e4 and \u2713 and a\nline end",
    "int": 7,
    "float": 1.5,
    "bool": True,
    "str | None": "text",
    "int | None": -9,
    "float | None": 2.5,
    "tuple[str, ...]": ("worker:0", "worker:1"),
    "Mapping[str, str]": {"worker:0": "host:1"},
    "Mapping[str, int]": {"worker:0": 100},
    "Mapping[str, float]": {"cluster_s": 1.25},
    "Mapping[str, Any] | None": {"node": "worker:0", "signal": 9},
}


def sample(cls: type[Event]) -> Event:
    return cls(**{field.name: SAMPLES[str(field.type)] for field in fields(cls)})


def test_every_kind_of_the_contract_exists() -> None:
    assert set(EVENT_TYPES) >= CONTRACT


@pytest.mark.parametrize("cls", EVENT_TYPES.values(), ids=lambda cls: cls.kind)
def test_an_event_comes_back_from_its_line(cls: type[Event]) -> None:
    event = sample(cls)
    line = to_line(event, ts=1234.5678)
    assert "\n" not in line
    assert parse_line(line) == (1234.568, event)
    data = json.loads(line)
    assert (data["v"], data["event"]) == (VERSION, cls.kind)


@pytest.mark.parametrize("cls", EVENT_TYPES.values(), ids=lambda cls: cls.kind)
def test_fields_of_a_newer_writer_are_ignored(cls: type[Event]) -> None:
    event = sample(cls)
    line = json.dumps(json.loads(to_line(event, ts=1.0)) | {"invented_later": [1, 2], "v": 2})
    assert parse_line(line) == (1.0, event)


def test_unknown_kinds_are_ignored() -> None:
    assert parse_line('{"v": 1, "ts": 1.0, "event": "invented_later", "node": "worker:0"}') is None
    assert parse_line('{"v": 1, "ts": 1.0}') is None


def test_a_known_event_without_a_required_field_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"event 'result' is incomplete: .*exit_code"):
        parse_line('{"v": 1, "ts": 1.0, "event": "result", "status": "success"}')


@pytest.mark.parametrize(
    ("line", "said"),
    [("", "Expecting value"), ("not JSON", "Expecting value"), ("[1, 2]", "not list"), ('"text"', "not str"), ("3", "not int")],
)
def test_what_is_no_event_is_an_error(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_line(line)


def test_a_line_is_stamped_with_the_time_when_none_is_given() -> None:
    early = to_line(Result(status="success", exit_code=0), ts=None)
    parsed = parse_line(early)
    assert parsed is not None
    assert parsed[0] > 1_700_000_000


def test_the_default_sink_takes_any_event() -> None:
    assert events.ignore(Result(status="failed", exit_code=1)) is None  # type: ignore[func-returns-value]
