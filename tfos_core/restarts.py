"""Starting a job again after a failure: whether it makes sense, when, and from which epoch.

    from tfos_core.restarts import RestartPolicy, run_job

    report = run_job(sc, main_fun, args, 4, data=df, num_epochs=10, policy=RestartPolicy(max_restarts=3), master_node="chief")

Every attempt is a cluster of its own, with a new generation and a new secret, on the executors that Spark has by then.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfos_core import events
from tfos_core.cancellation import Cancellation
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import (
    ChannelClosedError,
    FeedError,
    NodeError,
    NodeLostError,
    ReservationTimeoutError,
    ResultCountError,
    TfosError,
)

if TYPE_CHECKING:
    from tfos_core.options import ClusterOptions

__all__ = ("Attempt", "Restart", "RestartLoop", "RestartPolicy", "is_infrastructure", "run_job")

#: SIGKILL and what a shell makes of it: from outside, mostly because memory ran out on the host.
_SIGKILL = 9
_KILLED_EXIT_CODE = 137
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often a job is started again.

    Attributes:
        max_restarts: in all; 0 is never.
        backoff_s: seconds before the first restart, twice as many before each further one; 2 by default.
        longest_backoff_s: at most so many; 60 by default.
    """

    max_restarts: int = 0
    backoff_s: float = 2.0
    longest_backoff_s: float = 60.0

    def delay_s(self, number: int) -> float:
        """Seconds before restart `number`, counted from 1."""
        return float(min(self.longest_backoff_s, self.backoff_s * 2.0 ** min(number - 1, 30)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """One restart that took place: its number from 1, what had failed, and the epoch, from 0, that it begins with."""

    number: int
    error: str
    node: str = ""
    host: str = ""
    first_epoch: int = 0
    delay_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One start of the job. The body sets `report` to what its cluster reports, also when it fails."""

    number: int
    first_epoch: int
    report: ClusterReport = field(default_factory=ClusterReport)

    def options(self, options: ClusterOptions) -> ClusterOptions:
        """The options of this attempt's cluster."""
        return replace(options, restart_count=self.number, first_epoch=self.first_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a job failed: the error without what differs between attempts, and how far it had come."""

    error: str
    epoch: int
    step: int


class RestartLoop:
    """Runs attempts until one succeeds or another one makes no sense.

    Args:
        emit: gets `Restarting`, and a warning when a failure is not followed by a restart although some are left.
        on_restart: called with every restart, before its event.
    """

    def __init__(
        self,
        policy: RestartPolicy,
        *,
        cancellation: Cancellation,
        emit: events.EventSink,
        on_restart: Callable[[Restart], None] = lambda _: None,
    ) -> None:
        self._policy = policy
        self._on_restart = on_restart
        self._cancellation = cancellation
        self._emit = emit
        self._places: list[_Place] = []
        self.restarts: list[Restart] = []

    def run(self, body: Callable[[Attempt], T]) -> T:
        """Call `body` once for each attempt; it raises when the attempt failed and has shut its cluster down.

        Raises:
            NodeLostError: executors did not come back for a restart.
            Exception: what the last attempt raised.
        """
        epoch = step = 0
        while True:
            attempt = Attempt(number=len(self.restarts), first_epoch=epoch)
            try:
                return body(attempt)
            except ReservationTimeoutError as exc:
                if not self.restarts:
                    raise
                raise NodeLostError(
                    f"restart {attempt.number} found too few executors: {exc.message}; it was needed because {self._last}",
                    "Start the job again when the cluster has them.",
                ) from exc
            except TfosError as exc:
                self._cancellation.check()
                epoch, step = max(epoch, attempt.report.saved_epoch), max(step, attempt.report.saved_step)
                if not self._is_worth_it(exc, _Place(error=_without_place(exc), epoch=epoch, step=step)):
                    raise
                self._await_restart(exc, epoch)

    @property
    def _last(self) -> str:
        return self.restarts[-1].error

    def _is_worth_it(self, error: TfosError, place: _Place) -> bool:
        if not self._policy.max_restarts or isinstance(error, ResultCountError):
            return False
        if not isinstance(error, NodeError | FeedError | ChannelClosedError):
            return False
        repeats = place in self._places
        self._places.append(place)
        if repeats and not is_infrastructure(error):
            self._emit(
                events.Warned(
                    id="not-restarted",
                    message=f"the job failed in the same way as before restart {len(self.restarts)} and had come no further, so it "
                    "is not started again",
                    hint="The error is one of the program or its data.",
                )
            )
            return False
        return len(self.restarts) < self._policy.max_restarts

    def _await_restart(self, error: TfosError, epoch: int) -> None:
        number = len(self.restarts) + 1
        restart = Restart(
            number=number,
            error=error.message,
            node=getattr(error, "node", ""),
            host=getattr(error, "host", ""),
            first_epoch=epoch,
            delay_s=self._policy.delay_s(number),
        )
        self.restarts.append(restart)
        self._on_restart(restart)
        self._emit(events.Restarting(max_restarts=self._policy.max_restarts, **restart.to_dict()))
        stopped = threading.Event()
        self._cancellation.on_request(lambda _: stopped.set())
        stopped.wait(restart.delay_s)
        self._cancellation.check()


def is_infrastructure(error: TfosError) -> bool:
    """Whether an error comes from around the program: what died was killed, or lost together with its executor or host."""
    if isinstance(error, NodeLostError | ChannelClosedError):
        return True
    return isinstance(error, NodeError) and (error.signal == _SIGKILL or error.exit_code == _KILLED_EXIT_CODE)


def run_job(  # noqa: PLR0913 - what TFCluster.run, train and shutdown take
    sc: Any,
    map_fun: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    *,
    data: Any = None,
    num_epochs: int = 1,
    feed_timeout: float = 600,
    grace_secs: float = 0,
    shutdown_timeout: float = 259200,
    policy: RestartPolicy,
    options: ClusterOptions | None = None,
    **settings: Any,
) -> tuple[ClusterReport, Sequence[Restart]]:
    """Run a whole job, and start it again when it fails as `policy` says: `run`, `train` and `shutdown` in one call.

    Args:
        data: the RDD or DataFrame to feed; with None (the default) the nodes read for themselves.
        num_epochs: how often `data` is fed; also `ctx.num_epochs`.
        settings: further arguments of `TFCluster.run`, without `input_mode`, which follows from `data`.

    Returns:
        The report of the attempt that succeeded, and the restarts before it.

    Raises:
        TfosError: as `TFCluster.run`, `train` and `shutdown` of the last attempt.
    """
    from tfos_core import cluster

    chosen = replace(options or cluster.ClusterOptions(), num_epochs=num_epochs)
    # Checkpoints lie in a folder of this name, which all attempts have to share.
    chosen = replace(chosen, run_id=chosen.run_id or f"job-{secrets.token_hex(6)}")
    mode = cluster.InputMode.TENSORFLOW if data is None else cluster.InputMode.SPARK
    loop = RestartLoop(policy, cancellation=chosen.cancellation, emit=chosen.on_event)

    def once(attempt: Attempt) -> ClusterReport:
        running = cluster.run(
            sc, map_fun, tf_args, num_executors, input_mode=mode, options=attempt.options(chosen), **({"num_ps": 0} | settings)
        )
        try:
            if data is not None:
                running.train(data, num_epochs, feed_timeout, final=True, first_epoch=attempt.first_epoch)
            running.shutdown(grace_secs=grace_secs, timeout=shutdown_timeout)
        finally:
            attempt.report = running.report()
        return attempt.report

    return loop.run(once), tuple(loop.restarts)


def _without_place(error: TfosError) -> str:
    """An error's sentence without node, executor and addresses in memory, which differ from attempt to attempt."""
    _, found, said = error.message.partition(" failed: ")
    return f"{type(error).__name__} {_ADDRESS.sub('0x', said if found else error.message)}"
