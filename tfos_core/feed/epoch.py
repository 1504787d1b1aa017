"""What the driver tells about one epoch of a feed: progress, its end, and warnings about where rows went."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfos_core.events import FeedFinished, FeedProgress, Warned
from tfos_core.feed.ledger import Ledger

__all__ = ("Epoch", "FeedReport", "skew_warnings")

_PROGRESS_INTERVAL_S = 0.5
_SKEW = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedReport:
    """What one `train` call fed; `partitions` counts every epoch's, `epochs` those that were run."""

    epochs: int
    partitions: int
    partitions_discarded: int
    rows: int
    rows_per_node: Mapping[str, int]
    seconds: float

    @classmethod
    def of(cls, epochs: Sequence[FeedFinished], nodes: Sequence[str], seconds: float) -> FeedReport:
        """The sum of some epochs."""
        rows = {node: sum(epoch.rows_per_node[node] for epoch in epochs) for node in nodes}
        return cls(
            epochs=len(epochs),
            partitions=sum(epoch.partitions for epoch in epochs),
            partitions_discarded=sum(epoch.partitions_discarded for epoch in epochs),
            rows=sum(rows.values()),
            rows_per_node=rows,
            seconds=seconds,
        )


@dataclass(slots=True, kw_only=True)
class Epoch:
    """One epoch of one train call: `number` counts from 0, times are the coordinator's clock; `cached`: nodes replay it."""

    number: int = 0
    count: int = 1
    last: bool = False
    cached: bool = False
    started: float = 0.0
    reported: float = 0.0

    def progress(self, ledger: Ledger, now: float) -> FeedProgress | None:
        """How far it has come, at most twice a second."""
        if now - self.reported < _PROGRESS_INTERVAL_S:
            return None
        self.reported = now
        per_node = ledger.rows_per_node
        rows = sum(per_node.values())
        return FeedProgress(
            epoch=self.number,
            epochs=self.count,
            partitions_done=ledger.partitions_done,
            partitions=ledger.partitions,
            rows=rows,
            rows_per_s=round(rows / max(1e-9, now - self.started), 1),
            rows_per_node=per_node,
            cached=self.cached,
        )

    def finished(self, ledger: Ledger, now: float) -> FeedFinished:
        """What was fed in all."""
        per_node = ledger.rows_per_node
        return FeedFinished(
            epoch=self.number,
            epochs=self.count,
            partitions=ledger.partitions,
            rows=sum(per_node.values()),
            seconds=round(now - self.started, 3),
            rows_per_node=per_node,
            partitions_discarded=ledger.partitions_discarded,
            cached=self.cached,
        )


def skew_warnings(finished: FeedFinished, closed: Collection[str]) -> Iterator[Warned]:
    """Warn when open nodes got no row, or one more than twice the rows of another."""
    rows = {node: count for node, count in finished.rows_per_node.items() if node not in closed}
    if not finished.rows or len(rows) < 2:
        return
    hint = "Set spark.locality.wait=0s and spread the rows: df.repartition(n) with n a multiple of the nodes."
    empty = sorted(node for node, count in rows.items() if count == 0)
    if empty:
        yield Warned(id="feed-empty-node", message=f"no row of epoch {finished.epoch + 1} reached {', '.join(empty)}", hint=hint)
    elif max(rows.values()) > _SKEW * min(rows.values()):
        most, least = max(rows, key=rows.__getitem__), min(rows, key=rows.__getitem__)
        message = f"rows of epoch {finished.epoch + 1} are skewed: {rows[most]} on {most}, {rows[least]} on {least}"
        yield Warned(id="feed-skew", message=message, hint=hint)
