"""Options of a cluster."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tfos_core.events import Event, ShutdownStarted
from tfos_core.options import ClusterOptions


def test_a_sink_that_raises_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("the dashboard is gone")

    options = replace(ClusterOptions(on_event=broken), run_id="r")
    with caplog.at_level(logging.ERROR):
        options.on_event(ShutdownStarted(reason="done"))
    assert "the dashboard is gone" in caplog.text


def test_a_sink_gets_what_it_is_told() -> None:
    heard: list[object] = []
    options = ClusterOptions(on_event=heard.append, on_output=lambda node, lines: heard.append((node, list(lines))))
    event = ShutdownStarted(reason="done")
    options.on_event(event)
    options.on_output("worker:0", ["a", "b"])
    assert heard == [event, ("worker:0", ["a", "b"])]
