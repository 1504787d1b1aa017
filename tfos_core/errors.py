"""The errors that tfos_core raises; this module imports nothing of ours.

    TfosError
    +- ConfigError (ValueError)
    |  `- TopologyError
    +- EnvironmentCheckError
    +- ReservationError
    |  +- ReservationTimeoutError (TimeoutError)
    |  +- ProtocolError
    |  |  `- AuthenticationError
    |  +- ChannelClosedError
    |  +- DuplicateNodeError
    |  `- GpuError                   a host has too few GPUs for its nodes
    +- NodeError
    |  +- NodeFailedError            the user's code failed on a node
    |  |  `- NodeTimeoutError (TimeoutError)
    |  `- NodeLostError              an executor, its host or the driver went away
    +- FeedError
    |  +- FeedTimeoutError (TimeoutError)
    |  `- ResultCountError
    +- ClusterStateError
    `- InterruptedRunError

Every error is one sentence with the value that was wrong, and an optional hint that says what to do next. All arguments are
positional with defaults, because errors cross process boundaries and an exception with required keyword arguments does not
survive pickle.
"""

from __future__ import annotations

__all__ = (
    "AuthenticationError",
    "ChannelClosedError",
    "ClusterStateError",
    "ConfigError",
    "DuplicateNodeError",
    "EnvironmentCheckError",
    "FeedError",
    "FeedTimeoutError",
    "GpuError",
    "InterruptedRunError",
    "NodeError",
    "NodeFailedError",
    "NodeLostError",
    "NodeTimeoutError",
    "ProtocolError",
    "ReservationError",
    "ReservationTimeoutError",
    "ResultCountError",
    "TfosError",
    "TopologyError",
)


class TfosError(Exception):
    """Base of every error of tfos: a sentence, and optionally what to do next."""

    def __init__(self, message: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class ConfigError(TfosError, ValueError):
    """An argument or a setting has a value that can not work."""


class TopologyError(ConfigError):
    """The roles asked for do not add up to the number of nodes."""


class EnvironmentCheckError(TfosError):
    """Python, Java, Spark, TensorFlow or Keras is missing, or versions do not pair."""


class ReservationError(TfosError):
    """The nodes of a cluster could not be brought together."""


class ReservationTimeoutError(ReservationError, TimeoutError):
    """Some nodes did not register before the deadline; `missing` names their roles."""

    def __init__(self, message: str = "", hint: str | None = None, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, missing)
        self.missing = missing


class ProtocolError(ReservationError):
    """A peer sent something that the control protocol does not allow."""


class AuthenticationError(ProtocolError):
    """A peer could not prove that it knows the cluster's secret, or asked for a right it does not have."""


class ChannelClosedError(ReservationError):
    """The other end of a control channel went away."""


class DuplicateNodeError(ReservationError):
    """A node registered under a name that is already taken."""


class GpuError(ReservationError):
    """A host has too few GPUs, or too few free ones, for the nodes that run there."""


class NodeError(TfosError):
    """A node did not do its work; the fields name it."""

    def __init__(
        self,
        message: str = "",
        hint: str | None = None,
        node: str = "",
        host: str = "",
        executor_id: int = -1,
        exit_code: int | None = None,
        signal: int | None = None,
        remote_traceback: str = "",
        last_lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, node, host, executor_id, exit_code, signal, remote_traceback, last_lines)
        self.node = node
        self.host = host
        self.executor_id = executor_id
        self.exit_code = exit_code
        self.signal = signal
        self.remote_traceback = remote_traceback
        self.last_lines = last_lines


class NodeFailedError(NodeError):
    """The user's function raised, or its process ended with an exit code or a signal."""


class NodeTimeoutError(NodeFailedError, TimeoutError):
    """The user's function had not returned on a node when `shutdown` had waited its `timeout`."""


class NodeLostError(NodeError):
    """A node disappeared together with its executor, its host or the network; worth trying again."""


class FeedError(TfosError):
    """Rows could not be delivered to a node, or results could not be taken from it."""

    def __init__(self, message: str = "", hint: str | None = None, node: str = "", partition: int = -1) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, node, partition)
        self.node = node
        self.partition = partition


class FeedTimeoutError(FeedError, TimeoutError):
    """No row was consumed on a node for `feed_timeout` seconds."""


class ResultCountError(FeedError):
    """A batch of inference returned another number of results than it had rows."""


class ClusterStateError(TfosError):
    """A cluster was used in a way that its state or input mode does not allow."""


class InterruptedRunError(TfosError):
    """The run was told to stop from outside (Ctrl-C, `tfos cancel`, SIGTERM)."""
