"""The errors of submission."""

from __future__ import annotations

from typing import ClassVar

from tfos_core.errors import TfosError
from tfos_core.exit_codes import ExitCode

__all__ = ("SubmitError",)


class SubmitError(TfosError):
    """spark-submit could not hand the job to the cluster; `last_lines` are the end of its output."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.SUBMISSION

    def __init__(self, message: str = "", hint: str | None = None, last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, last_lines)
        self.last_lines = last_lines
