"""Errors of batch inference that are not mistakes of the spec."""

from __future__ import annotations

from typing import ClassVar

from tfos_core.errors import FeedError, TfosError
from tfos_core.exit_codes import ExitCode

__all__ = ("ModelError", "OutputCountError", "RejectedError", "RowRejectedError")


class ModelError(TfosError):
    """The model can not be loaded or called at all, whatever the rows are."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.USER_CODE


class RowRejectedError(TfosError):
    """The model, or the way to it, does not take a row; the message names the row."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.USER_CODE


class OutputCountError(FeedError):
    """The model gave another number of results than it got rows, or the output has another number of rows than the input."""


class RejectedError(Exception):
    """The model raised for some rows of a call; the text is the reason in one line. Never leaves the worker."""
