"""What Spark runs to feed a partition: callable frozen dataclasses, one per kind of source.

A permanent failure (the node failed or consumed nothing in time) is an outcome, not an exception: Spark would try three more times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tfos_core.allocator import keep_freed_memory, keep_modules
from tfos_core.column_names import named
from tfos_core.errors import FeedError, ResultCountError, TfosError
from tfos_core.feed.blocks import decode
from tfos_core.feed.failures import to_wire
from tfos_core.feed.feeder import Feeder, Hello, NodeClosedError, NodeRefusedError
from tfos_core.feed.last_word import word_of
from tfos_core.feed.packing import Packed, pack_arrow, pack_frames, pack_rows
from tfos_core.feed.rendezvous import Descriptor, executor_folder
from tfos_core.feed.upstream import broke_off
from tfos_core.feed.wire import Mode
from tfos_core.inference.report import Reporter, TaskReport

__all__ = ("EPOCH_PROPERTY", "FeedArrow", "FeedFrames", "FeedRows", "InferFrames", "InferRows", "Outcome", "Target")

# Which epoch a job feeds travels as a local property of the job, so that every epoch runs the very same RDD.
EPOCH_PROPERTY = "tfos.feed.epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where rows go and how long to wait; `block_bytes` is the size that blocks aim at."""

    generation: str
    feed_timeout: float
    block_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a partition; `rows` were consumed in this attempt."""

    partition: int
    state: Literal["drained", "discarded", "failed"]
    node: str = ""
    rows: int = 0
    error: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFrames:
    """Pickled batches exactly as the JVM has them."""

    target: Target

    def __call__(self, frames: Iterable[bytes]) -> Iterator[str]:
        """Feed one partition."""
        yield _feed(self.target, lambda: pack_frames(frames, self.target.block_bytes)).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRows:
    """Rows of any RDD."""

    target: Target

    def __call__(self, rows: Iterable[Any]) -> Iterator[str]:
        """Feed one partition."""
        yield _feed(self.target, lambda: pack_rows(rows, self.target.block_bytes)).to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedArrow:
    """Record batches of a DataFrame (mapInArrow); `names` of its columns where they are not those of the batches."""

    target: Target
    names: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Feed one partition."""
        import pyarrow as pa

        outcome = _feed(self.target, lambda: pack_arrow(named(batches, self.names), self.target.block_bytes))
        yield pa.RecordBatch.from_arrays([pa.array([outcome.to_json()], pa.string())], names=["outcome"])


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRows:
    """Rows in, one result per row out, in order; `reporter` is told when a partition is done."""

    target: Target
    reporter: Reporter | None = None

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Serve one partition."""
        return _infer(self.target, pack_rows(rows, self.target.block_bytes), self.reporter)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferFrames:
    """The same for pickled batches as the JVM has them."""

    target: Target
    reporter: Reporter | None = None

    def __call__(self, frames: Iterable[bytes]) -> Iterator[Any]:
        """Serve one partition."""
        return _infer(self.target, pack_frames(frames, self.target.block_bytes), self.reporter)


def _feed(target: Target, blocks: Callable[[], Iterator[Packed]]) -> Outcome:
    keep_freed_memory()
    keep_modules()
    hello = _hello(target, Mode.TRAIN)
    node = ""
    try:
        descriptor = _descriptor(target)
        node = descriptor.node
        with Feeder(descriptor, replace(hello, generation=descriptor.generation)) as feeder:
            if feeder.already_drained:
                return Outcome(partition=hello.partition, state="drained", node=node)
            for packed in blocks():
                feeder.send(packed)
            _check_complete(hello)
            feeder.finish()
            return Outcome(partition=hello.partition, state="drained", node=node, rows=feeder.await_drained())
    except NodeClosedError:
        return Outcome(partition=hello.partition, state="discarded", node=node)
    except NodeRefusedError as exc:
        return Outcome(partition=hello.partition, state="failed", node=node, error=to_wire(exc.error))


def _infer(target: Target, blocks: Iterator[Packed], reporter: Reporter | None) -> Iterator[Any]:
    keep_freed_memory()
    keep_modules()
    hello = _hello(target, Mode.INFER)
    given = 0
    try:
        descriptor = _descriptor(target)
        with Feeder(descriptor, replace(hello, generation=descriptor.generation)) as feeder:
            for packed in blocks:
                feeder.send(packed)
                for kind, payload in feeder.results():
                    rows = _rows_of(kind, payload)
                    given += len(rows)
                    yield from rows
            _check_complete(hello)
            feeder.finish()
            for kind, payload in feeder.remaining_results():
                rows = _rows_of(kind, payload)
                given += len(rows)
                yield from rows
            consumed = feeder.await_drained()
    except NodeClosedError as exc:
        raise word_of(os.environ, target.generation) or FeedError(
            f"the node {exc} ended before it had answered partition {hello.partition}",
            "During inference the function has to run until should_stop().",
            str(exc),
            hello.partition,
        ) from None
    except NodeRefusedError as exc:
        raise (word_of(os.environ, target.generation) or exc.error) from None
    if given != consumed:
        raise ResultCountError(
            f"{given} results for {consumed} rows of partition {hello.partition}", None, descriptor.node, hello.partition
        )
    if reporter is not None:
        reporter.send(TaskReport(partition=hello.partition, stage=_stage(), rows=consumed, results=given))


def _check_complete(hello: Hello) -> None:
    if broke_off():
        raise FeedError(
            f"Spark broke off the rows of partition {hello.partition} before their end (attempt {hello.attempt})",
            "What makes the rows failed: Spark's own error of this task says how. Spark tries again.",
            partition=hello.partition,
        )


def _stage() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.stageId() if context is not None else -1


def _rows_of(kind: Any, payload: Any) -> list[Any]:
    block = decode(kind, payload)
    return block.rows(0, len(block))


def _descriptor(target: Target) -> Descriptor:
    try:
        descriptor = Descriptor.read(executor_folder(os.environ))
    except TfosError as exc:
        raise NodeRefusedError(exc) from exc
    if target.generation and descriptor.generation != target.generation:
        raise NodeRefusedError(
            FeedError(
                f"the node {descriptor.node} of this executor belongs to cluster {descriptor.generation}, not {target.generation}",
                "Call shutdown() on the earlier cluster before starting another one in the same Spark application.",
                descriptor.node,
            )
        )
    return descriptor


def _hello(target: Target, mode: Mode) -> Hello:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise FeedError("a feed task runs only inside a Spark task")
    epoch = json.loads(context.getLocalProperty(EPOCH_PROPERTY) or "{}")
    return Hello(
        mode=mode,
        generation=target.generation,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        feed_timeout=target.feed_timeout,
        seq=epoch.get("seq", 0),
        call=epoch.get("call", 0),
        keep=epoch.get("keep"),
    )
