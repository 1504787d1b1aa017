"""How many batches a stack has, without a feed."""

from __future__ import annotations

import pytest

from tfos_core.feed.pace import MOST_FED, MOST_REPLAYED, Pace, in_advance


def stacks(pace: Pace, steps_s: list[float], *, is_replay: bool) -> list[int]:
    """The stacks of an epoch whose steps take so long, each one ready while the one before it is used."""
    found: list[int] = []
    begun = 0
    while sum(found) < len(steps_s):
        found.append(min(pace.batches, len(steps_s) - sum(found)))
        in_use = found[-2] if len(found) > 1 else 0
        took_s = sum(steps_s[begun : begun + in_use])
        begun += in_use
        pace.handed_out(found[-1], took_s, most=MOST_REPLAYED if is_replay else MOST_FED, is_replay=is_replay)
    return found


def test_stacks_double_after_the_first_batches() -> None:
    assert stacks(Pace(), [0.0] * 80, is_replay=False) == [1] * 16 + [2, 4, 8, 14, 16, 16, 4]


def test_a_stack_lasts_for_a_twentieth_of_a_second_by_the_time_of_the_one_before() -> None:
    assert stacks(Pace(), [0.0099] * 40, is_replay=False) == [1] * 16 + [2, 4, 5, 5, 5, 3]
    assert stacks(Pace(), [0.06] * 20, is_replay=False) == [1] * 20


@pytest.mark.parametrize("sizes", [[1] * 40, [1, 2] * 20, list(range(1, 30))])
def test_the_stack_in_use_and_the_ready_one_are_no_more_than_was_used_before(sizes: list[int]) -> None:
    pace, found = Pace(), [0]
    for size in sizes:
        found.append(min(size, pace.batches))
        pace.handed_out(found[-1], 0.0, most=MOST_FED, is_replay=False)
    used = 0
    for before, in_use, ready in zip(found, found[1:], found[2:], strict=False):
        used += before
        assert in_use + ready <= max(used, 2)
    assert in_advance(0, 0) == 1


def test_an_epoch_from_the_cache_goes_on_as_the_one_before_ended() -> None:
    pace = Pace()
    stacks(pace, [0.1] * 30, is_replay=True)
    assert pace.for_next_epoch == 5
    # The first step is a slow one, of which nothing follows for those behind it.
    pace = Pace(pace.for_next_epoch)
    assert stacks(pace, [2.0] + [0.1] * 25, is_replay=True) == [1, 5, 5, 5, 5, 5]
    assert pace.for_next_epoch == 2, "all steps of the epoch count"
    assert stacks(Pace(30), [0.001] * 100, is_replay=True) == [1, 30, 30, 32, 7]


def test_batches_that_take_all_the_room_come_one_by_one() -> None:
    pace = Pace(30)
    for _ in range(30):
        assert pace.batches == 1
        pace.handed_out(1, 0.0, most=1, is_replay=True)


def test_an_iteration_of_nothing_suggests_one() -> None:
    assert Pace(7).for_next_epoch == 1
