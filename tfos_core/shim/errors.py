"""Errors of a job that are not errors of its cluster."""

from __future__ import annotations

from typing import ClassVar

from tfos_core.errors import TfosError
from tfos_core.exit_codes import ExitCode

__all__ = ("DriverLostError", "SubmissionError", "UserCodeError")


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
