from __future__ import annotations

import json
from typing import Any

import pytest

from tfos_core.outcome import Outcome, judge

RAISED = {"op": "failed", "error": "ValueError: x", "traceback": "Traceback ...", "kind": "ValueError"}


@pytest.mark.parametrize(
    ("status", "reported", "stopped", "expected"),
    [
        (0, None, False, Outcome(ok=True, exit_code=0)),
        (-15, None, True, Outcome(ok=True, exit_code=0)),
        (-9, None, True, Outcome(ok=True, exit_code=0)),
        (3, None, True, Outcome(ok=True, exit_code=3)),
        (1, RAISED, False, Outcome(ok=False, error="ValueError: x", exit_code=1, traceback="Traceback ...")),
        # Reported before the stop: the stop does not make it good, nor does the signal that followed replace the reason.
        (-15, RAISED, True, Outcome(ok=False, error="ValueError: x", exit_code=1, traceback="Traceback ...")),
        (0, RAISED, False, Outcome(ok=False, error="ValueError: x", exit_code=1, traceback="Traceback ...")),
        (5, None, False, Outcome(ok=False, error="the process of worker:0 exited with code 5", exit_code=5)),
    ],
)
def test_the_outcome_follows_from_the_status_and_what_was_said(
    status: int, reported: dict[str, Any] | None, stopped: bool, expected: Outcome
) -> None:
    assert judge("worker:0", status, reported, stopped=stopped) == expected


def test_a_signal_is_named_and_sigkill_is_explained() -> None:
    killed = judge("worker:0", -9, None, stopped=False)
    assert (killed.signal, killed.exit_code) == (9, 137)
    assert killed.error.startswith("the process of worker:0 was killed by signal 9 (SIGKILL); ")
    assert "out of memory" in killed.error
    assert judge("worker:0", -11, None, stopped=False).error.endswith("signal 11 (SIGSEGV)")
    assert "signal 120 (unknown)" in judge("worker:0", -120, None, stopped=False).error
    assert "too much memory" in judge("worker:0", 137, None, stopped=False).error


@pytest.mark.parametrize(("kind", "collateral"), [("UnavailableError", True), ("ValueError", False), (None, False)])
def test_errors_that_follow_from_another_node_are_marked(kind: str | None, collateral: bool) -> None:
    assert judge("worker:0", 1, RAISED | {"kind": kind}, stopped=False).collateral is collateral


def test_an_outcome_survives_json_and_newer_fields() -> None:
    outcome = Outcome(ok=False, error="x", signal=9, lost=True)
    assert Outcome.from_dict({"op": "node.ended", "news": 1, **json.loads(json.dumps(outcome.to_dict()))}) == outcome
