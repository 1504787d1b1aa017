"""A job that waits for cores which nodes hold is told, once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from testbed.clusters import Recorder
from testbed.waiting import poll_until

from tfos_core import slot_watch
from tfos_core.slot_watch import SlotWatch


class Tracker:
    """Stages by id as Spark's tracker tells them; counts how often it was asked."""

    def __init__(self, stages: dict[int, tuple[int, int, int]]) -> None:
        self.stages = stages
        self.asked = 0
        self.gone = False

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - the name is Spark's
        self.asked += 1
        if self.gone:
            raise RuntimeError("SparkContext was shut down")
        return list(self.stages)

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802 - the name is Spark's
        active, completed, total = self.stages[stage]
        return SimpleNamespace(name="count at job.py:3", numActiveTasks=active, numCompletedTasks=completed, numTasks=total)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(slot_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(slot_watch, "WAITING_S", 0.05)
    return Recorder()


def started(tracker: Tracker, events: Recorder) -> SlotWatch:
    watch = SlotWatch(SimpleNamespace(statusTracker=lambda: tracker), events)  # type: ignore[arg-type]
    watch.start()
    return watch


def test_a_stage_without_a_running_task_is_told_with_what_to_do(events: Recorder) -> None:
    tracker = Tracker({0: (2, 0, 2), 7: (0, 0, 4)})
    started(tracker, events)
    warning = events.wait_for("warning", 10)
    assert warning.id == "nodes-hold-all-slots"
    assert "stage 7 of this application (count at job.py:3)" in warning.message
    assert "more executors than nodes" in warning.hint


def test_it_is_told_once(events: Recorder) -> None:
    watch = started(Tracker({7: (0, 0, 4), 8: (0, 0, 4)}), events)
    events.wait_for("warning", 10)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert len(events.all("warning")) == 1


def test_a_stage_that_gets_a_core_now_and_then_does_not_wait(events: Recorder) -> None:
    tracker = Tracker({7: (1, 0, 4), 8: (0, 4, 4)})
    watch = started(tracker, events)
    poll_until(lambda: tracker.asked > 20, 10, what="Spark was asked often enough")
    watch.stop()
    assert events.all("warning") == []


def test_a_context_that_is_gone_ends_the_watch(events: Recorder) -> None:
    tracker = Tracker({7: (0, 0, 4)})
    tracker.gone = True
    watch = started(tracker, events)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert events.all("warning") == []
