"""What a run tells about itself: one flat dataclass per event, and its JSON line.

A line is `{"v": 1, "ts": <seconds since the epoch>, "event": <kind>, ...fields}`. Readers ignore kinds and fields that they do not
know, so that a newer writer does not break an older reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from tfos_core.event_line import event_line
from tfos_core.json_text import parse_json

__all__ = (
    "EVENT_TYPES",
    "ClusterReady",
    "DriverStarted",
    "Event",
    "EventSink",
    "FeedFinished",
    "FeedProgress",
    "InferFinished",
    "InferProgress",
    "NodeFailed",
    "NodeFinished",
    "NodeRegistered",
    "ReservationServerStarted",
    "ReservationWaiting",
    "Restarting",
    "Result",
    "ShutdownFinished",
    "ShutdownStarted",
    "StreamFinished",
    "StreamProgress",
    "Submitted",
    "TensorBoardKept",
    "TensorBoardStarted",
    "Warned",
    "ignore",
    "parse_line",
    "to_line",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    kind: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted(Event):
    """spark-submit is about to start."""

    kind: ClassVar[str] = "submitted"
    run_id: str
    name: str
    master: str
    run_folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStarted(Event):
    """The SparkContext is there."""

    kind: ClassVar[str] = "driver_started"
    application_id: str
    host: str
    pid: int
    spark_version: str
    web_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationServerStarted(Event):
    """The server that nodes register with listens; `expected` names every node of the plan."""

    kind: ClassVar[str] = "reservation_server"
    host: str
    port: int
    expected: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistered(Event):
    """A node has registered; `gpus` is what its CUDA_VISIBLE_DEVICES names."""

    kind: ClassVar[str] = "node_registered"
    node: str
    executor_id: int
    host: str
    port: int
    pid: int
    registered: int
    expected: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationWaiting(Event):
    """Some nodes have not registered yet; `reason` is Spark's own where it gives one."""

    kind: ClassVar[str] = "reservation_waiting"
    missing: tuple[str, ...]
    waited_s: float
    timeout_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReady(Event):
    """Every node has registered and knows the others; `addresses` maps a node to host:port."""

    kind: ClassVar[str] = "cluster_ready"
    addresses: Mapping[str, str]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardStarted(Event):
    """TensorBoard answers at `url`; from `host` only when the address is loopback."""

    kind: ClassVar[str] = "tensorboard"
    node: str
    url: str
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardKept(Event):
    """The nodes are done, and TensorBoard stays up for `seconds`, or until the run is stopped."""

    kind: ClassVar[str] = "tensorboard_kept"
    node: str
    url: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedProgress(Event):
    """How far the feeding of one epoch has come; `rows` were consumed by the nodes; `cached`: from their caches."""

    kind: ClassVar[str] = "feed_progress"
    epoch: int
    epochs: int
    partitions_done: int
    partitions: int
    rows: int
    rows_per_s: float
    rows_per_node: Mapping[str, int]
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFinished(Event):
    """One epoch was fed; `partitions_discarded` arrived at nodes that had already ended; `cached`: nodes replayed it."""

    kind: ClassVar[str] = "feed_finished"
    epoch: int
    epochs: int
    partitions: int
    rows: int
    seconds: float
    rows_per_node: Mapping[str, int]
    partitions_discarded: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress(Event):
    """A batch of a stream was fed: its number from 1, its rows, and those of all so far; `seconds` is how long it took."""

    kind: ClassVar[str] = "stream_progress"
    batch: int
    rows: int
    rows_total: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFinished(Event):
    """Nothing more of a stream will be fed; `reason` says why, the batch in flight was fed to its end."""

    kind: ClassVar[str] = "stream_finished"
    batches: int
    rows: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferProgress(Event):
    """How many rows were answered in partitions that are done; `rows_bad` of them could not be."""

    kind: ClassVar[str] = "infer_progress"
    partitions_done: int
    partitions: int
    rows: int
    rows_per_s: float
    rows_bad: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferFinished(Event):
    """Every row was answered, and the output is in its place: `rows` came in, `rows_out` and `rows_bad` were written."""

    kind: ClassVar[str] = "infer_finished"
    partitions: int
    rows: int
    rows_out: int
    rows_bad: int
    seconds: float
    output: str
    bad_rows: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFinished(Event):
    """A node's process ended well, or a serving node was stopped; `value` is what an instance of a parallel job returned."""

    kind: ClassVar[str] = "node_finished"
    node: str
    seconds: float
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed(Event):
    """A node ended badly; `first` marks the failure that explains the others."""

    kind: ClassVar[str] = "node_failed"
    node: str
    host: str
    executor_id: int
    error: str
    exit_code: int | None = None
    signal: int | None = None
    traceback: str = ""
    last_lines: tuple[str, ...] = ()
    lost: bool = False
    first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarting(Event):
    """The job failed with `error` and starts again after `delay_s` seconds; feeding begins with `first_epoch`, from 0."""

    kind: ClassVar[str] = "restarting"
    number: int
    max_restarts: int
    error: str
    node: str = ""
    host: str = ""
    first_epoch: int = 0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something that the user should know although the run goes on."""

    kind: ClassVar[str] = "warning"
    id: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownStarted(Event):
    """The nodes are being told to end."""

    kind: ClassVar[str] = "shutdown_started"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownFinished(Event):
    """No node is left; `seconds` since the last finishing node ended (or since the shutdown began, if later)."""

    kind: ClassVar[str] = "shutdown_finished"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Event):
    """The last event of a run.

    `status` is success, failed or interrupted; `timings` are seconds by phase; `first_failure` has the fields of `NodeFailed`.
    `steps_per_node` are batches that programs took from the feed, `rows_left_over` rows that `equal_steps` dropped (they are in
    `rows_per_node` too).
    `restarts` are those that took place: number, error, node, host, first_epoch and delay_s of each; rows and batches count all
    attempts. `instances` of a parallel job: index, host, gpus, ok, value and error of each. `inference` of a job that answers rows:
    rows_in, rows_out, rows_bad, partitions, output and bad_rows.
    """

    kind: ClassVar[str] = "result"
    status: str
    exit_code: int
    error: str = ""
    hint: str = ""
    first_failure: Mapping[str, Any] | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    rows_fed: int = 0
    rows_per_node: Mapping[str, int] = field(default_factory=dict)
    steps_per_node: Mapping[str, int] = field(default_factory=dict)
    rows_left_over: Mapping[str, int] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    restarts: tuple[Mapping[str, Any], ...] = ()
    instances: tuple[Mapping[str, Any], ...] = ()
    inference: Mapping[str, Any] | None = None


EventSink = Callable[[Event], None]

EVENT_TYPES: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__()}


def ignore(event: Event) -> None:
    """An `EventSink` for callers that do not look."""


def to_line(event: Event, *, ts: float | None = None) -> str:
    """The JSON line of an event, without the line end; `ts` defaults to now."""
    return event_line(event.kind, asdict(event), ts=ts)


def parse_line(line: str) -> tuple[float, Event] | None:
    """The time and the event of a line, or None when its kind is unknown.

    Raises:
        ValueError: the line is not JSON, or a known event lacks a field.
    """
    data = parse_json(line)
    if not isinstance(data, dict):
        raise ValueError(f"an event is a JSON object, not {type(data).__name__}")
    cls = EVENT_TYPES.get(str(data.get("event")))
    if cls is None:
        return None
    known = {f.name for f in fields(cls)}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in known}
    try:
        return float(data.get("ts", 0.0)), cls(**values)
    except TypeError as exc:
        raise ValueError(f"event {cls.kind!r} is incomplete: {exc}") from exc
