"""What a cluster did, for the result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfos_core.events import NodeFailed

if TYPE_CHECKING:
    from tfos_core.feed.coordinator import FeedReport

__all__ = ("ClusterReport",)


@dataclass(slots=True, kw_only=True)
class ClusterReport:
    """Grows while the cluster works.

    Attributes:
        rows_per_node: rows that each node consumed, all epochs together.
        steps_per_node: batches with rows that the program of each node took from the feed.
        left_over: rows that `equal_steps` dropped, by node; they count in `rows_per_node`.
        partitions_discarded: partitions that arrived at nodes which had already ended.
        timings: seconds: `executors_s` until the executors were there, `ready_s` from then until every node had registered,
            `feed_s`, `shutdown_s` from the end of the last node until nothing was left.
        saved_epoch: epochs, counted from 0, that a checkpoint of the program holds, as it said; a restart goes on from there.
        saved_step: the highest step that the program gave a checkpoint.
        exports: paths that nodes exported to; `exports_by_node` says which did.
        gpus: what CUDA_VISIBLE_DEVICES names on each node; empty for a node without GPUs.
        values: what independent instances returned.
        first_failure: the failure that explains the others.
    """

    rows_per_node: dict[str, int] = field(default_factory=dict)
    steps_per_node: dict[str, int] = field(default_factory=dict)
    left_over: dict[str, int] = field(default_factory=dict)
    partitions_discarded: int = 0
    timings: dict[str, float] = field(default_factory=dict)
    saved_epoch: int = 0
    saved_step: int = 0
    exports: list[str] = field(default_factory=list)
    exports_by_node: dict[str, list[str]] = field(default_factory=dict)
    gpus: dict[str, tuple[str, ...]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    first_failure: NodeFailed | None = None

    @property
    def rows(self) -> int:
        """Rows that were consumed in all."""
        return sum(self.rows_per_node.values())

    def add_feed(self, report: FeedReport) -> None:
        """Count one `train` call."""
        for node, rows in report.rows_per_node.items():
            self.rows_per_node[node] = self.rows_per_node.get(node, 0) + rows
        self.partitions_discarded += report.partitions_discarded
        self.timings["feed_s"] = self.timings.get("feed_s", 0.0) + report.seconds

    def add_checkpoint(self, *, epoch: int, step: int) -> None:
        """A node has saved what the program knows after `epoch` epochs and `step` steps."""
        self.saved_epoch, self.saved_step = max(self.saved_epoch, epoch), max(self.saved_step, step)

    def copy(self, *, first_failure: NodeFailed | None) -> ClusterReport:
        """As it is now."""
        return replace(
            self,
            rows_per_node=dict(self.rows_per_node),
            steps_per_node=dict(self.steps_per_node),
            left_over=dict(self.left_over),
            timings={name: round(seconds, 3) for name, seconds in self.timings.items()},
            exports=list(self.exports),
            exports_by_node={node: list(paths) for node, paths in self.exports_by_node.items()},
            gpus=dict(self.gpus),
            values=dict(self.values),
            first_failure=first_failure,
        )
