"""Stacks of a process that is stuck."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tfos_core.stacks import ASK_SIGNAL, StackPipe, Stacks, parse_stacks

DUMP = """\
Thread 0x00007f2a00000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/x/tfos_core/feed/hub.py", line 12 in run

Thread 0x00007f2a00000002 (most recent call first):
  File "/v/lib/python3.11/site-packages/tensorflow/execute.py", line 59 in quick_execute
  File "/job/my app.py", line 17 in train step
  File "/job/my app.py", line 40 in main_fun
  File "/x/tfos_core/tf_process.py", line 150 in run
  File "<frozen runpy>", line 88 in _run_code
"""

#: PyDLL does not let other threads run, unlike CDLL.
KEEPS_THE_INTERPRETER = "while True: ctypes.PyDLL(None).sleep(60)"

PROGRAM = """
import ctypes, os, sys, threading, time
from tfos_core.stacks import offer_stacks

def stuck():
    print("stuck", flush=True)
    {body}

offer_stacks({fd})
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
stuck()
"""


@contextmanager
def program(body: str) -> Iterator[tuple[StackPipe, subprocess.Popen[str]]]:
    """A process that is stuck in `body`."""
    reading, writing = os.pipe()
    pipe = StackPipe(reading)
    command = [sys.executable, "-c", PROGRAM.format(body=body, fd=writing)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[writing]) as child:
        os.close(writing)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "stuck\n"
            yield pipe, child
        finally:
            child.kill()
            pipe.close()
            pipe.close()


def test_the_main_thread_is_found_and_the_programs_own_place_in_it() -> None:
    stacks = parse_stacks(DUMP, "0x7f2a00000002")
    assert stacks.place == "train step (my app.py:17)"
    assert stacks.main_text.splitlines()[0] == "Main thread (most recent call last):"
    assert stacks.main_text.splitlines()[-2:] == [
        '  File "/job/my app.py", line 17, in train step',
        '  File "/v/lib/python3.11/site-packages/tensorflow/execute.py", line 59, in quick_execute',
    ]
    assert stacks.text == DUMP


def test_of_a_thread_without_code_of_the_program_the_innermost_call_is_told() -> None:
    assert parse_stacks(DUMP, "0x7f2a00000001").place == "wait (threading.py:320)"


@pytest.mark.parametrize("text", ["", "...\n", DUMP])
def test_a_dump_without_the_main_thread_has_no_place(text: str) -> None:
    stacks = parse_stacks(text, "0x1")
    assert (stacks.main, stacks.place, stacks.main_text, stacks.text) == ((), "", "", text)


@pytest.mark.parametrize("body", ["time.sleep(60)", KEEPS_THE_INTERPRETER])
def test_a_stuck_process_says_where_it_is_as_often_as_it_is_asked(body: str) -> None:
    with program(body) as (pipe, child):
        for _ in range(2):
            stacks = pipe.ask(child.send_signal)
            assert [frame.function for frame in stacks.main] == ["<module>", "stuck"]
            assert stacks.text.count("most recent call first") == 2
        assert child.poll() is None


def test_a_stopped_process_does_not_answer_and_keeps_nobody() -> None:
    with program("time.sleep(60)") as (pipe, child):
        child.send_signal(signal.SIGSTOP)
        assert pipe.ask(child.send_signal, answer_s=0.2) == Stacks()


def test_a_process_that_has_closed_its_end_is_not_asked() -> None:
    with program("os.closerange(3, 64); print('closed', flush=True); time.sleep(60)") as (pipe, child):
        assert child.stdout is not None
        assert child.stdout.readline() == "closed\n"
        assert pipe.ask(child.send_signal) == Stacks()
        assert child.poll() is None


def test_a_process_that_has_not_offered_its_stacks_is_not_asked() -> None:
    reading, writing = os.pipe()
    pipe = StackPipe(reading)
    try:
        assert pipe.ask(lambda number: pytest.fail(f"signal {number} was sent")) == Stacks()
    finally:
        pipe.close()
        os.close(writing)


def test_nobody_else_takes_the_signal() -> None:
    assert signal.getsignal(ASK_SIGNAL) is signal.SIG_DFL
