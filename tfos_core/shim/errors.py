"""Errors of a job that are not errors of its cluster."""

from __future__ import annotations

from typing import ClassVar

from tfos_core.errors import TfosError
from tfos_core.exit_codes import ExitCode

__all__ = ("DriverLostError", "SubmissionError", "UserCodeError", "hint_of", "sentence_of")


class UserCodeError(TfosError):
    """The user's code raised on the driver: on import, in `source` or in `transform`."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.USER_CODE

    def __init__(self, message: str = "", hint: str | None = None, remote_traceback: str = "") -> None:
        super().__init__(message, hint)
        self.args = (message, hint, remote_traceback)
        self.remote_traceback = remote_traceback


class SubmissionError(TfosError):
    """Spark did not start the application."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.SUBMISSION


class DriverLostError(TfosError):
    """Spark's driver went away under the job; worth trying again."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.INFRASTRUCTURE


def sentence_of(error: BaseException) -> str:
    """What ended a job, in one sentence."""
    if isinstance(error, TfosError):
        return error.message or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "the run was interrupted"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def hint_of(error: BaseException | None, code: ExitCode) -> str:
    """What to do next; empty when nothing is known."""
    if isinstance(error, TfosError):
        return error.hint or ""
    return "This is a defect of tfos; report it with the driver's log." if code is ExitCode.INTERNAL else ""
