"""A job that waits for cores which nodes hold is told, once."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from testbed.clusters import Recorder
from testbed.waiting import poll_until

from tfos_core import slot_watch
from tfos_core.slot_watch import SlotWatch


class Store:
    """Stages by id with their active, completed and all tasks, as Spark's store tells them; counts how often it was asked."""

    def __init__(self, stages: dict[int, tuple[int, int, int]]) -> None:
        self.stages = stages
        self.asked = 0
        self.gone = False

    def active(self) -> Any:
        self.asked += 1
        if self.gone:
            raise RuntimeError("SparkContext was shut down")
        found = [stage(*entry) for entry in self.stages.items()]
        return SimpleNamespace(size=found.__len__, apply=found.__getitem__)


def stage(stage_id: int, tasks: tuple[int, int, int]) -> Any:
    values = zip(("numActiveTasks", "numCompleteTasks", "numTasks"), tasks, strict=True)
    methods = {name: partial(int, value) for name, value in values}
    return SimpleNamespace(stageId=partial(int, stage_id), name=partial(str, "count at job.py:3"), **methods)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(slot_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(slot_watch, "WAITING_S", 0.05)
    return Recorder()


def started(store: Store, events: Recorder) -> SlotWatch:
    scala = SimpleNamespace(statusStore=lambda: SimpleNamespace(activeStages=store.active))
    context: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))
    watch = SlotWatch(context, events)
    watch.start()
    return watch


def test_a_stage_without_a_running_task_is_told_with_what_to_do(events: Recorder) -> None:
    store = Store({0: (2, 0, 2), 7: (0, 0, 4)})
    started(store, events)
    warning = events.wait_for("warning", 10)
    assert warning.id == "nodes-hold-all-slots"
    assert "stage 7 of this application (count at job.py:3)" in warning.message
    assert "more executors than nodes" in warning.hint


def test_it_is_told_once(events: Recorder) -> None:
    watch = started(Store({7: (0, 0, 4), 8: (0, 0, 4)}), events)
    events.wait_for("warning", 10)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert len(events.all("warning")) == 1


def test_a_stage_that_gets_a_core_now_and_then_does_not_wait(events: Recorder) -> None:
    store = Store({7: (1, 0, 4), 8: (0, 4, 4)})
    watch = started(store, events)
    poll_until(lambda: store.asked > 20, 10, what="Spark was asked often enough")
    watch.stop()
    assert events.all("warning") == []


def test_a_context_that_is_gone_ends_the_watch(events: Recorder) -> None:
    store = Store({7: (0, 0, 4)})
    store.gone = True
    watch = started(store, events)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert events.all("warning") == []
