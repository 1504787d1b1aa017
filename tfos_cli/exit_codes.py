"""Which error ends `tfos` with which exit code.

The numbers are a promise to shell scripts and schedulers; change none of them.
"""

from __future__ import annotations

from enum import IntEnum

from tfos_cli.submit.errors import SubmitError
from tfos_core import errors

__all__ = ("EXIT_CODES", "ExitCode", "exit_code_of")


class ExitCode(IntEnum):
    """How a command ended."""

    SUCCESS = 0
    USER_CODE = 1
    USAGE = 2
    ENVIRONMENT = 3
    STARTUP = 4
    SUBMISSION = 5
    FEEDING = 6
    INFRASTRUCTURE = 7
    #: A defect of tfos itself. Not 1, which Python would use: that number says that the user's code failed on a node.
    INTERNAL = 70
    INTERRUPTED = 130
    #: What a shell shows for a program whose reader went away (128 + SIGPIPE).
    BROKEN_PIPE = 141


#: The first entry that an error is an instance of decides: special before general.
EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.InterruptedRunError, ExitCode.INTERRUPTED),
    (errors.ConfigError, ExitCode.USAGE),
    (errors.EnvironmentCheckError, ExitCode.ENVIRONMENT),
    (SubmitError, ExitCode.SUBMISSION),
    (errors.NodeLostError, ExitCode.INFRASTRUCTURE),
    (errors.NodeError, ExitCode.USER_CODE),
    (errors.FeedError, ExitCode.FEEDING),
    (errors.ChannelClosedError, ExitCode.INFRASTRUCTURE),
    (errors.ReservationError, ExitCode.STARTUP),
    (errors.ClusterStateError, ExitCode.USER_CODE),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    # A file or folder that can not be read or written is the machine's state, not the program's fault.
    (OSError, ExitCode.ENVIRONMENT),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error; `INTERNAL` for one that nobody expected."""
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL
