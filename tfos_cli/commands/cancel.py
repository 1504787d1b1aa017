"""`tfos cancel`: stop a run from another terminal."""

from __future__ import annotations

import os
import signal
import socket
import time

import click

from tfos_cli.exit_codes import ExitCode
from tfos_cli.options import json_option, run_id_argument, verbosity_options
from tfos_cli.runs import Run, RunStore
from tfos_cli.ui.console import Console
from tfos_core.shim.errors import DriverLostError
from tfos_core.shim.status import ProcessIdentity, RunStatus

__all__ = ("command",)

_LOOK_EVERY_S = 0.1
#: The record of a run on a cluster is on another machine; its manager takes seconds to answer.
_LOOK_SELDOM_S = 1.0
_ASK_MANAGER_S = 15.0


@click.command("cancel", short_help="Stop a run and shut its cluster down.")
@run_id_argument
@click.option("--timeout", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to wait for the end.")
@json_option
@verbosity_options
@click.pass_obj
def command(console: Console, /, run_id: str, timeout: float) -> int:
    """Stop a run and shut its cluster down.

    Waits until the run has ended. The run itself ends with exit code 130; this command with 0 when the run has ended, whoever ended
    it, and with 7 when it has not.

    \b
    Examples:
      tfos cancel digits-20261129-131502-a1b2
    """
    run = RunStore.of_environment(os.environ).find(run_id)
    status = run.status()
    if status.is_finished:
        _tell(console, run, status, f"run {run.id} had already ended: {status.status}, exit code {status.exit_code}")
        return ExitCode.SUCCESS
    owner = _owner(status)
    if owner is None and status.record:
        status = _cancel_on_cluster(console, run, timeout)
        _tell(console, run, status, f"run {run.id} has ended: {status.status}, exit code {status.exit_code}")
        return ExitCode.SUCCESS
    if owner is None:
        raise DriverLostError(
            f"run {run.id} has not ended, but the processes that took care of it are gone",
            f"Look at {run.driver_log}; the next job on its hosts removes what it left behind.",
        )
    _terminate(owner)
    status = _await_end(run, owner, timeout)
    if not status.is_finished:
        raise DriverLostError(
            f"run {run.id} has not ended {timeout:g} s after it was asked to",
            f"Ask once more, which kills it: 'tfos cancel {run.id}'.",
        )
    _tell(console, run, status, f"run {run.id} has ended: {status.status}, exit code {status.exit_code}")
    return ExitCode.SUCCESS


def _owner(status: RunStatus) -> ProcessIdentity | None:
    """Whom to ask: the follower, or the driver itself when a detached run lost its follower."""
    return next((owner for owner in (status.follower, status.driver) if owner is not None and owner.is_alive), None)


def _cancel_on_cluster(console: Console, run: Run, timeout: float) -> RunStatus:
    """End a run whose driver is on the cluster and that nobody here follows: asked in its record; asked again, by its manager."""
    from tfos_cli.remote.catch_up import Unfollowed  # which has more to import than most runs need

    unfollowed = Unfollowed.of(run, run.status(), os.environ)
    if unfollowed is None:
        return run.status()
    status = unfollowed.read()
    asked_before = not status.is_finished and not unfollowed.request_end(f"tfos cancel on {socket.gethostname()}")
    if asked_before and unfollowed.kill():
        console.note(f"application {status.application_id} is killed")
    until = time.monotonic() + timeout
    ask_after = time.monotonic() + (0.0 if asked_before else _ASK_MANAGER_S)
    while not status.is_finished and time.monotonic() < until:
        time.sleep(_LOOK_SELDOM_S)
        status = unfollowed.read()
        if not status.is_finished and time.monotonic() > ask_after:
            status = unfollowed.ask_manager()
            ask_after = time.monotonic() + _ASK_MANAGER_S
    if not status.is_finished:
        raise DriverLostError(
            f"run {run.id} has not ended {timeout:g} s after it was asked to",
            f"Ask once more, which kills its application: 'tfos cancel {run.id}'.",
        )
    return status


def _terminate(owner: ProcessIdentity) -> None:
    try:
        os.kill(owner.pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has ended in this very moment


def _await_end(run: Run, owner: ProcessIdentity, timeout: float) -> RunStatus:
    """The record when the run has ended and its follower has cleaned up, or as it is after `timeout` seconds."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if run.status().is_finished and not owner.is_alive:
            break
        if not owner.is_alive and run.is_abandoned(run.status()):
            break
        time.sleep(_LOOK_EVERY_S)
    return run.status()


def _tell(console: Console, run: Run, status: RunStatus, text: str) -> None:
    if console.json:
        console.result_json({**status.to_dict(), "run_folder": str(run.folder)})
    else:
        console.result(text)
