"""Which error ends `tfos` with which exit code: the table of runs, and what only a command line knows.

The numbers are a promise to shell scripts and schedulers; change none of them.
"""

from __future__ import annotations

from tfos_core import exit_codes as run
from tfos_core.exit_codes import ExitCode

__all__ = ("BROKEN_PIPE", "ExitCode", "exit_code_of")

#: What a shell shows for a program whose reader went away (128 + SIGPIPE).
BROKEN_PIPE = 141


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error; `INTERNAL` for one that nobody expected."""
    code = run.exit_code_of(error)
    if code is ExitCode.INTERNAL and isinstance(error, OSError):
        # A file or folder that can not be read or written is the machine's state, not a defect of the program.
        return ExitCode.ENVIRONMENT
    return code
