"""What is known about a run, folded from its events: `state = apply(state, ts, event)`. Pure; the renderers only draw it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tfos_core import events
from tfos_core.topology import Role

__all__ = ("FeedView", "InferView", "NodePhase", "NodeView", "Phase", "RunView", "StreamView", "apply", "replay")


class Phase(StrEnum):
    """What the run is busy with, in the order in which a good run goes through it."""

    SUBMITTING = "submitting"
    DRIVER = "driver started"
    RESERVING = "waiting for nodes"
    RESTARTING = "starting again"
    READY = "cluster ready"
    FEEDING = "feeding"
    STREAMING = "feeding a stream"
    FED = "training"
    ANSWERING = "answering rows"
    STOPPING = "shutting down"
    DOWN = "cluster is down"
    FINISHED = "finished"


class NodePhase(StrEnum):
    """What a node is known to be doing."""

    MISSING = "missing"
    REGISTERED = "registered"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node of the cluster; `rows` were consumed by it in the running epoch."""

    name: str
    phase: NodePhase = NodePhase.MISSING
    host: str = ""
    port: int = 0
    executor_id: int | None = None
    gpus: tuple[str, ...] = ()
    rows: int = 0
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedView:
    """How far the feeding has come. `epoch` counts from 1, as people do; `rows` are those of the epoch."""

    epoch: int
    epochs: int
    partitions_done: int
    partitions: int
    rows: int
    rows_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """What of a stream was fed."""

    batches: int
    rows: int
    has_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InferView:
    """How many rows are answered; `rows_bad` of them could not be."""

    partitions_done: int
    partitions: int
    rows: int
    rows_bad: int
    rows_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Everything that a screen may show. Times of day are seconds since the epoch; 0 is "not yet"."""

    run_id: str = ""
    name: str = ""
    master: str = ""
    run_folder: str = ""
    phase: Phase = Phase.SUBMITTING
    started: float = 0.0
    updated: float = 0.0
    application_id: str = ""
    driver_host: str = ""
    spark_version: str = ""
    web_url: str = ""
    nodes: tuple[NodeView, ...] = ()
    reserving_since: float = 0.0
    reservation_timeout_s: float = 0.0
    waiting_reason: str = ""
    ready_s: float | None = None
    feed: FeedView | None = None
    stream: StreamView | None = None
    inference: InferView | None = None
    rows_fed: int = 0
    tensorboard_url: str = ""
    warnings: tuple[events.Warned, ...] = ()
    first_failure: events.NodeFailed | None = None
    restarts: tuple[events.Restarting, ...] = ()
    shutdown_reason: str = ""
    shutdown_s: float | None = None
    result: events.Result | None = None
    _by_name: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the nodes that have not registered."""
        return tuple(node.name for node in self.nodes if node.phase is NodePhase.MISSING)

    @property
    def registered(self) -> int:
        """How many nodes have registered at some time."""
        return len(self.nodes) - len(self.missing)

    @property
    def first_node(self) -> str:
        """The node that speaks for the cluster: the chief or master, else worker 0."""
        names = (f"{Role.CHIEF}:0", f"{Role.MASTER}:0", f"{Role.WORKER}:0")
        return next((name for name in names if name in self._by_name), names[-1])

    def node(self, name: str) -> NodeView | None:
        """The node of that name, when it is known."""
        index = self._by_name.get(name)
        return None if index is None else self.nodes[index]


def apply(state: RunView, ts: float, event: events.Event) -> RunView:
    """The state after an event. Events of unknown classes change nothing but the time."""
    state = replace(state, updated=max(state.updated, ts))
    match event:
        case events.Submitted():
            return _submitted(state, ts, event)
        case events.DriverStarted():
            return _driver_started(state, event)
        case events.ReservationServerStarted() | events.NodeRegistered() | events.ReservationWaiting() | events.ClusterReady():
            return _reservation(state, ts, event)
        case (
            events.FeedProgress()
            | events.FeedFinished()
            | events.StreamProgress()
            | events.StreamFinished()
            | events.InferProgress()
            | events.InferFinished()
        ):
            return _rows(state, event)
        case events.NodeFinished() | events.NodeFailed():
            return _node_ended(state, event)
        case events.TensorBoardStarted():
            return replace(state, tensorboard_url=event.url)
        case events.Warned():
            return replace(state, warnings=(*state.warnings, event))
        case events.Restarting():
            return _restarting(state, event)
        case events.ShutdownStarted():
            return replace(state, phase=Phase.STOPPING, shutdown_reason=event.reason)
        case events.ShutdownFinished():
            return replace(state, phase=Phase.DOWN, shutdown_s=event.seconds)
        case events.Result():
            return replace(state, phase=Phase.FINISHED, result=event, rows_fed=event.rows_fed or state.rows_fed)
        case _:
            return state


def replay(path: Path) -> RunView:
    """The state after all events of a file. Lines that are damaged or of unknown kinds are passed over; no file, no events."""
    state = RunView()
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return state
    for line in lines:
        try:
            parsed = events.parse_line(line)
        except ValueError:
            continue  # the last line of a run that is just being written, or was killed while writing
        if parsed is not None:
            state = apply(state, *parsed)
    return state


def _submitted(state: RunView, ts: float, event: events.Submitted) -> RunView:
    return replace(
        state,
        run_id=event.run_id,
        name=event.name,
        master=event.master,
        run_folder=event.run_folder,
        started=ts,
        phase=Phase.SUBMITTING,
    )


def _driver_started(state: RunView, event: events.DriverStarted) -> RunView:
    return replace(
        state,
        phase=Phase.DRIVER,
        application_id=event.application_id,
        driver_host=event.host,
        spark_version=event.spark_version,
        web_url=event.web_url or "",
    )


def _reservation(
    state: RunView,
    ts: float,
    event: events.ReservationServerStarted | events.NodeRegistered | events.ReservationWaiting | events.ClusterReady,
) -> RunView:
    match event:
        case events.ReservationServerStarted():
            nodes = tuple(NodeView(name=name) for name in event.expected)
            state = replace(state, phase=Phase.RESERVING, reserving_since=ts, reservation_timeout_s=event.timeout_s)
            return _with_nodes(state, nodes)
        case events.NodeRegistered():
            return _change(
                state,
                event.node,
                phase=NodePhase.REGISTERED,
                host=event.host,
                port=event.port,
                executor_id=event.executor_id,
                gpus=event.gpus,
            )
        case events.ReservationWaiting():
            state = replace(state, waiting_reason=event.reason, reservation_timeout_s=event.timeout_s)
            for name in event.missing:
                state = _change(state, name, phase=NodePhase.MISSING)
            return state
        case events.ClusterReady():
            for name in event.addresses:
                state = _change(state, name, phase=NodePhase.RUNNING)
            return replace(state, phase=Phase.READY, ready_s=event.seconds, waiting_reason="")


_Feed = events.FeedProgress | events.FeedFinished
_Stream = events.StreamProgress | events.StreamFinished
_Infer = events.InferProgress | events.InferFinished


def _rows(state: RunView, event: _Feed | _Stream | _Infer) -> RunView:
    if isinstance(event, (events.InferProgress, events.InferFinished)):
        return replace(state, inference=_inference(event), phase=Phase.ANSWERING)
    if isinstance(event, (events.StreamProgress, events.StreamFinished)):
        return _stream(state, event)
    return _feed(state, event)


def _inference(event: events.InferProgress | events.InferFinished) -> InferView:
    if isinstance(event, events.InferProgress):
        done, rows_per_s = event.partitions_done, event.rows_per_s
    else:
        done, rows_per_s = event.partitions, event.rows / event.seconds if event.seconds > 0 else 0.0
    return InferView(
        partitions_done=done, partitions=event.partitions, rows=event.rows, rows_bad=event.rows_bad, rows_per_s=rows_per_s
    )


def _stream(state: RunView, event: events.StreamProgress | events.StreamFinished) -> RunView:
    if isinstance(event, events.StreamProgress):
        stream = StreamView(batches=event.batch, rows=event.rows_total)
        return replace(state, stream=stream, feed=None, phase=Phase.STREAMING)
    stream = StreamView(batches=event.batches, rows=event.rows, has_ended=True)
    return replace(state, stream=stream, feed=None, phase=Phase.FED)


def _feed(state: RunView, event: events.FeedProgress | events.FeedFinished) -> RunView:
    for name, rows in event.rows_per_node.items():
        state = _change(state, name, rows=rows)
    if isinstance(event, events.FeedProgress):
        feed = FeedView(
            epoch=event.epoch + 1,
            epochs=event.epochs,
            partitions_done=event.partitions_done,
            partitions=event.partitions,
            rows=event.rows,
            rows_per_s=event.rows_per_s,
        )
        return replace(state, feed=feed, phase=Phase.FEEDING)
    feed = FeedView(
        epoch=event.epoch + 1,
        epochs=event.epochs,
        partitions_done=event.partitions,
        partitions=event.partitions,
        rows=event.rows,
        rows_per_s=event.rows / event.seconds if event.seconds > 0 else 0.0,
    )
    last = event.epoch + 1 >= event.epochs
    return replace(state, feed=feed, rows_fed=state.rows_fed + event.rows, phase=Phase.FED if last else Phase.FEEDING)


def _restarting(state: RunView, event: events.Restarting) -> RunView:
    """What was seen of the failed attempt is gone; `first_failure` is that of the job, which has not failed."""
    restarts = (*state.restarts, event)
    state = replace(state, phase=Phase.RESTARTING, restarts=restarts, first_failure=None, feed=None, shutdown_reason="")
    return _with_nodes(state, ())


def _node_ended(state: RunView, event: events.NodeFinished | events.NodeFailed) -> RunView:
    if isinstance(event, events.NodeFinished):
        return _change(state, event.node, phase=NodePhase.FINISHED, seconds=event.seconds)
    phase = NodePhase.LOST if event.lost else NodePhase.FAILED
    state = _change(state, event.node, phase=phase, host=event.host, error=event.error)
    if event.first and state.first_failure is None:
        state = replace(state, first_failure=event)
    return state


def _change(state: RunView, name: str, **changes: object) -> RunView:
    """The state with other values for one node; a node that nobody announced is added at the end."""
    index = state._by_name.get(name)
    if index is None:
        return _with_nodes(state, (*state.nodes, replace(NodeView(name=name), **changes)))  # type: ignore[arg-type]
    node = replace(state.nodes[index], **changes)  # type: ignore[arg-type]
    return replace(state, nodes=(*state.nodes[:index], node, *state.nodes[index + 1 :]))


def _with_nodes(state: RunView, nodes: Iterable[NodeView]) -> RunView:
    known = tuple(nodes)
    return replace(state, nodes=known, _by_name={node.name: index for index, node in enumerate(known)})
