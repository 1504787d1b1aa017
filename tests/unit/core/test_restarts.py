"""When a job is started again, and from where."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tfos_core import events
from tfos_core.cancellation import Cancellation
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import (
    ConfigError,
    FeedTimeoutError,
    InterruptedRunError,
    NodeFailedError,
    NodeLostError,
    ReservationTimeoutError,
    ResultCountError,
    TfosError,
)
from tfos_core.restarts import Attempt, RestartLoop, RestartPolicy, is_infrastructure

KILLED = NodeFailedError("worker:1 (executor 1 on h) failed: killed by signal 9", None, "worker:1", "h", 1, 137, 9)


def wrong(text: str = "ValueError: no column", executor: int = 1) -> NodeFailedError:
    return NodeFailedError(f"worker:1 (executor {executor} on h) failed: {text}", None, "worker:1", "h", executor, 1)


class Story:
    """A job whose attempts end as `ends` says: an error, or an error and the epoch saved before it; None is success."""

    def __init__(self, *ends: TfosError | tuple[TfosError, int] | None, restarts: int = 3) -> None:
        self.ends = list(ends)
        self.attempts: list[tuple[int, int]] = []
        self.events: list[events.Event] = []
        self.cancellation = Cancellation()
        policy = RestartPolicy(max_restarts=restarts, backoff_s=0.001)
        self.loop = RestartLoop(policy, cancellation=self.cancellation, emit=self.events.append)

    def body(self, attempt: Attempt) -> str:
        self.attempts.append((attempt.number, attempt.first_epoch))
        end = self.ends.pop(0)
        if end is None:
            return "done"
        error, saved = end if isinstance(end, tuple) else (end, 0)
        attempt.report = ClusterReport(saved_epoch=saved)
        raise error

    def run(self) -> str:
        return self.loop.run(self.body)

    def warned(self) -> list[str]:
        return [event.id for event in self.events if isinstance(event, events.Warned)]


def test_a_job_that_succeeds_is_run_once() -> None:
    story = Story(None)
    assert story.run() == "done"
    assert story.attempts == [(0, 0)]
    assert story.events == []


def test_a_killed_process_and_a_lost_executor_start_the_job_again_from_the_last_checkpoint() -> None:
    story = Story((KILLED, 2), (NodeLostError("worker:0 was lost", None, "worker:0", "h2"), 4), None)
    assert story.run() == "done"
    assert story.attempts == [(0, 0), (1, 2), (2, 4)]
    told = [event for event in story.events if isinstance(event, events.Restarting)]
    assert [(event.number, event.node, event.host, event.first_epoch) for event in told] == [
        (1, "worker:1", "h", 2),
        (2, "worker:0", "h2", 4),
    ]
    assert [restart.number for restart in story.loop.restarts] == [1, 2]


def test_an_attempt_that_saved_nothing_does_not_go_back_behind_an_earlier_one() -> None:
    story = Story((KILLED, 3), KILLED, None)
    story.run()
    assert story.attempts == [(0, 0), (1, 3), (2, 3)]


def test_the_last_error_is_raised_when_no_restart_is_left() -> None:
    story = Story(KILLED, KILLED, KILLED, restarts=2)
    with pytest.raises(NodeFailedError, match="signal 9"):
        story.run()
    assert len(story.attempts) == 3
    assert story.warned() == []


def test_without_restarts_the_first_failure_is_the_end() -> None:
    story = Story(KILLED, restarts=0)
    with pytest.raises(NodeFailedError):
        story.run()
    assert story.events == []


def test_an_error_of_the_program_that_repeats_at_the_same_place_is_not_tried_for_ever() -> None:
    story = Story(wrong(), wrong(executor=2), None, restarts=100)
    with pytest.raises(NodeFailedError, match="no column"):
        story.run()
    assert len(story.attempts) == 2
    assert story.warned() == ["not-restarted"]


def test_addresses_in_memory_do_not_make_errors_differ() -> None:
    story = Story(wrong("TypeError: <object at 0x7f12>"), wrong("TypeError: <object at 0x7f99>"), restarts=100)
    with pytest.raises(NodeFailedError):
        story.run()
    assert len(story.attempts) == 2


def test_the_same_error_after_progress_or_another_error_is_tried_again() -> None:
    story = Story((wrong(), 1), (wrong(), 2), (wrong("OSError: disk"), 2), (KILLED, 2), None, restarts=100)
    assert story.run() == "done"
    assert story.warned() == []


@pytest.mark.parametrize("error", [ConfigError("x"), ResultCountError("x"), ReservationTimeoutError("x"), InterruptedRunError("x")])
def test_what_can_not_get_better_is_not_tried_again(error: TfosError) -> None:
    story = Story(error, None)
    with pytest.raises(type(error)):
        story.run()
    assert len(story.attempts) == 1


def test_a_feed_that_stalls_is_tried_again() -> None:
    story = Story(FeedTimeoutError("nothing consumed"), None)
    assert story.run() == "done"


def test_executors_that_do_not_come_back_are_lost_infrastructure_and_the_first_reason_is_told() -> None:
    story = Story(KILLED, ReservationTimeoutError("2 nodes need 2 executors, 1 available"))
    with pytest.raises(NodeLostError, match=r"restart 1 found too few executors: 2 nodes .* because worker:1 .* signal 9"):
        story.run()


def test_a_stop_ends_the_wait_and_is_not_a_failure_to_restart_after() -> None:
    story = Story(KILLED, None)
    story.loop._policy = RestartPolicy(max_restarts=1, backoff_s=600, longest_backoff_s=600)
    timer = threading.Timer(0.1, story.cancellation.request, args=("Ctrl-C",))
    timer.start()
    with pytest.raises(InterruptedRunError, match="Ctrl-C"):
        story.run()
    assert len(story.attempts) == 1
    stopped = Story(KILLED, None)
    stopped.cancellation.request("SIGTERM")
    with pytest.raises(InterruptedRunError, match="SIGTERM"):
        stopped.run()


def test_the_wait_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy(max_restarts=9, backoff_s=2, longest_backoff_s=60)
    assert [policy.delay_s(number) for number in (1, 2, 3, 6, 7, 5000)] == [2, 4, 8, 60, 60, 60]


def test_the_options_of_an_attempt_tell_the_program_where_it_is() -> None:
    from tfos_core.options import ClusterOptions

    chosen = Attempt(number=2, first_epoch=5).options(ClusterOptions(run_id="r"))
    assert (chosen.run_id, chosen.restart_count, chosen.first_epoch) == ("r", 2, 5)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: KILLED, True),
        (lambda: NodeLostError("x"), True),
        (lambda: NodeFailedError("x", exit_code=137), True),
        (lambda: NodeFailedError("x", signal=11, exit_code=139), False),
        (wrong, False),
        (lambda: FeedTimeoutError("x"), False),
    ],
)
def test_infrastructure_is_what_was_killed_or_lost(make: Callable[[], Any], expected: bool) -> None:
    assert is_infrastructure(make()) is expected
