from __future__ import annotations

from tfos_core.timers import Timers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_timers_run_once_when_they_are_due_the_earliest_first() -> None:
    clock = Clock()
    done: list[str] = []
    timers = Timers(clock)
    assert timers.seconds_left() is None
    timers.set("b", 5, lambda: done.append("b"))
    timers.set("a", 2, lambda: done.append("a"))
    assert timers.seconds_left() == 2
    timers.run_due()
    assert done == []
    clock.now += 6
    assert timers.seconds_left() == 0
    timers.run_due()
    timers.run_due()
    assert done == ["a", "b"]
    assert "a" not in timers


def test_a_timer_is_replaced_moved_forward_or_cancelled() -> None:
    clock = Clock()
    done: list[str] = []
    timers = Timers(clock)
    timers.set("kill", 5, lambda: done.append("first"))
    timers.set("kill", 9, lambda: done.append("later"), sooner_only=True)
    assert timers.seconds_left() == 5
    timers.set("kill", 3, lambda: done.append("sooner"), sooner_only=True)
    assert timers.seconds_left() == 3
    timers.set("other", 4, lambda: done.append("other"))
    clock.now += 3
    timers.run_due()
    assert done == ["sooner"]
    timers.set("other", 2, lambda: done.append("other"))
    timers.set("kill", 1, lambda: timers.cancel("other", "nobody"))
    clock.now += 5
    timers.run_due()
    assert done == ["sooner"]
