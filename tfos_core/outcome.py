"""How a node's process ended, judged from its exit status and from what it said before; pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ("Outcome", "judge")

#: Errors that TensorFlow raises on the nodes that outlive a failed one; they never explain a failure.
_COLLATERAL = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`ok`, or what went wrong: a sentence, and the exit code or the signal.

    `lost` means that the surroundings went away, not the user's code. `collateral` marks errors that follow from another node's.
    """

    ok: bool
    error: str = ""
    exit_code: int | None = None
    signal: int | None = None
    traceback: str = ""
    lost: bool = False
    collateral: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """From a message; unknown keys are ignored."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


def judge(node: str, status: int, reported: Mapping[str, Any] | None, *, stopped: bool) -> Outcome:
    """The outcome of a node's process.

    Args:
        node: its name, for the sentence.
        status: as `subprocess.Popen.returncode`: negative for a signal.
        reported: what the process said of a failure before it was told to stop, or None.
        stopped: whether it was told to stop; then a signal is no failure.
    """
    if reported is not None:
        return Outcome(
            ok=False,
            error=str(reported["error"]),
            exit_code=status if status > 0 else 1,
            traceback=str(reported["traceback"]),
            collateral=reported.get("kind") in _COLLATERAL,
        )
    if stopped or status == 0:
        return Outcome(ok=True, exit_code=max(status, 0))
    if status < 0:
        return Outcome(ok=False, error=_killed(node, -status), signal=-status, exit_code=128 - status)
    hint = "; 137 usually means that it was killed for using too much memory" if status == 137 else ""
    return Outcome(ok=False, error=f"the process of {node} exited with code {status}{hint}", exit_code=status)


def _killed(node: str, number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    hint = "; when nobody did that, the host was probably out of memory" if number == signal.SIGKILL else ""
    return f"the process of {node} was killed by signal {number} ({name}){hint}"
