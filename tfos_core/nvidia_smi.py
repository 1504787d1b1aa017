"""Asks nvidia-smi which GPUs this host has; never waits longer than told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Final

from tfos_core.gpu import GpuSurvey, has_hidden_users, parse_survey

__all__ = ("NVIDIA_SMI", "QUERIES", "survey", "survey_until")

#: Found on PATH.
NVIDIA_SMI: Final = "nvidia-smi"

#: Whole GPUs and MIG parts; facts; processes. The fields that may hold commas come last.
QUERIES: Final = (
    ("-L",),
    ("--query-gpu=index,uuid,memory.used,memory.total,name", "--format=csv,noheader,nounits"),
    ("--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name", "--format=csv,noheader,nounits"),
)

#: Asked where the first three leave open which part of a GPU a process is in.
_REPORT: Final = ("-q",)

#: For all queries together, in seconds. Without persistence mode each may take some; with a broken driver it never answers.
_TIMEOUT_S = 20.0
#: From one look to the next while another job may let go of a GPU, in seconds.
_LOOK_S = 2.0
_NO_DEVICES = "No devices were found"


def survey(program: str = NVIDIA_SMI, *, timeout: float = _TIMEOUT_S) -> GpuSurvey:
    """What this host has now. Anything that goes wrong is the survey's `problem`; no driver and no nvidia-smi are such."""
    deadline = time.monotonic() + timeout
    answers = []
    for query in QUERIES:
        try:
            code, text = _ask([program, *query], max(0.0, deadline - time.monotonic()))
        except FileNotFoundError:
            return GpuSurvey(problem=f"there is no {program} on PATH")
        except OSError as exc:
            return GpuSurvey(problem=f"{program} can not be run: {exc.strerror or exc}")
        except subprocess.TimeoutExpired:
            return GpuSurvey(problem=f"{program} did not answer within {timeout:g} s")
        if _NO_DEVICES in text:
            return GpuSurvey()
        if code:
            said = " ".join(text.split())[:300] or "nothing"
            return GpuSurvey(problem=f"{program} {query[0].partition('=')[0]} ended with code {code} and said: {said}")
        answers.append(text)
    listing, gpus, processes = answers
    report = _report(program, deadline) if has_hidden_users(listing, processes) else ""
    return parse_survey(listing, gpus, processes, report)


def _report(program: str, deadline: float) -> str:
    """The long report; empty, so that all parts of a GPU count as taken, where it is not to be had."""
    try:
        code, text = _ask([program, *_REPORT], max(0.0, deadline - time.monotonic()))
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if code else text


def survey_until(enough: Callable[[GpuSurvey], bool], wait_s: float, *, look: Callable[[], GpuSurvey] = survey) -> GpuSurvey:
    """Look again until `enough` or `wait_s` seconds are over: other jobs come to an end, and nvidia-smi can only be polled."""
    deadline = time.monotonic() + wait_s
    while True:
        found = look()
        left = deadline - time.monotonic()
        if enough(found) or left <= 0:
            return found
        time.sleep(min(_LOOK_S, left))


def _ask(command: list[str], timeout: float) -> tuple[int, str]:
    """Exit code and output of a command.

    `subprocess.run` would wait for ever after its kill: a process that hangs inside the driver does not end, nor does a child of a
    wrapper script that holds the pipe.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        if process.stdout is not None:
            process.stdout.close()
        raise
    return process.returncode, text
