"""A request to stop, made in one thread and heard in others."""

from __future__ import annotations

import threading

import pytest

from tfos_core.cancellation import Cancellation
from tfos_core.errors import InterruptedRunError


def test_nothing_happens_before_a_request() -> None:
    cancellation = Cancellation()
    cancellation.on_request(pytest.fail)
    cancellation.check()
    assert cancellation.reason is None


def test_callbacks_hear_the_reason_in_the_order_in_which_they_came() -> None:
    cancellation = Cancellation()
    heard: list[str] = []
    cancellation.on_request(lambda reason: heard.append(f"first {reason}"))
    cancellation.on_request(lambda reason: heard.append(f"second {reason}"))
    cancellation.request("Ctrl-C")
    assert heard == ["first Ctrl-C", "second Ctrl-C"]


def test_only_the_first_request_counts() -> None:
    cancellation = Cancellation()
    heard: list[str] = []
    cancellation.on_request(heard.append)
    cancellation.request("Ctrl-C")
    cancellation.request("SIGTERM")
    assert heard == ["Ctrl-C"]
    assert cancellation.reason == "Ctrl-C"


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    cancellation = Cancellation()
    cancellation.request("tfos cancel")
    heard: list[str] = []
    cancellation.on_request(heard.append)
    assert heard == ["tfos cancel"]


def test_check_raises_with_the_reason_after_a_request() -> None:
    cancellation = Cancellation()
    cancellation.request("Ctrl-C")
    with pytest.raises(InterruptedRunError, match="the run was stopped: Ctrl-C"):
        cancellation.check()


def test_a_callback_may_use_the_cancellation() -> None:
    cancellation = Cancellation()
    heard: list[str] = []

    def again(reason: str) -> None:
        cancellation.request("again")
        cancellation.on_request(heard.append)

    cancellation.on_request(again)
    cancellation.request("first")
    assert heard == ["first"]


def test_requests_of_many_threads_reach_every_callback_once() -> None:
    cancellation = Cancellation()
    heard: list[str] = []
    start = threading.Barrier(8)

    def run(number: int) -> None:
        start.wait(10)
        cancellation.on_request(heard.append)
        cancellation.request(f"thread {number}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert heard == [cancellation.reason] * 8


def test_a_callback_is_not_kept_longer_than_it_listens() -> None:
    cancellation = Cancellation()
    heard: list[str] = []
    with cancellation.heard_by(heard.append):
        pass
    cancellation.on_request(pytest.fail)
    cancellation.forget(pytest.fail)
    cancellation.forget(pytest.fail)
    cancellation.request("Ctrl-C")
    assert heard == []


def test_a_listener_hears_what_is_requested_meanwhile() -> None:
    cancellation = Cancellation()
    heard: list[str] = []
    with cancellation.heard_by(heard.append):
        cancellation.request("Ctrl-C")
    assert heard == ["Ctrl-C"]
