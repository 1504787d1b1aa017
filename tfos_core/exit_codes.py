"""Which error of a run ends it with which exit code. The driver shim writes the code into the run's status record.

The numbers are a promise to shell scripts and schedulers; change none of them.
"""

from __future__ import annotations

from enum import IntEnum

from tfos_core import errors

__all__ = ("RUN_EXIT_CODES", "ExitCode", "exit_code_of")


class ExitCode(IntEnum):
    """How a run ended."""

    SUCCESS = 0
    USER_CODE = 1
    USAGE = 2
    ENVIRONMENT = 3
    STARTUP = 4
    SUBMISSION = 5
    FEEDING = 6
    INFRASTRUCTURE = 7
    #: A defect of tfos itself. Not 1, which Python would use: that number says that the user's code failed.
    INTERNAL = 70
    INTERRUPTED = 130


#: The first entry that an error is an instance of decides: special before general.
RUN_EXIT_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (errors.InterruptedRunError, ExitCode.INTERRUPTED),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (errors.ConfigError, ExitCode.USAGE),
    (errors.EnvironmentCheckError, ExitCode.ENVIRONMENT),
    (errors.NodeLostError, ExitCode.INFRASTRUCTURE),
    (errors.NodeError, ExitCode.USER_CODE),
    (errors.FeedError, ExitCode.FEEDING),
    (errors.ChannelClosedError, ExitCode.INFRASTRUCTURE),
    (errors.ReservationError, ExitCode.STARTUP),
    (errors.ClusterStateError, ExitCode.USER_CODE),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error; an error may name its own in `run_exit_code`, and one that nobody expected is `INTERNAL`."""
    own = getattr(error, "run_exit_code", None)
    if isinstance(own, ExitCode):
        return own
    for kind, code in RUN_EXIT_CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL
