"""What nodes say of all their epochs together; it comes with every message of theirs, and last with the one that they are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfos_core.events import Warned

__all__ = ("NodeTotals",)

#: Share of rows that `equal_steps` may drop without a warning: the ends of an even distribution are less.
_LEFT_OVER = 0.1


class NodeTotals:
    """Batches that the program took, and rows that `equal_steps` dropped, by node."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._steps = dict.fromkeys(nodes, 0)
        self._left_over = dict.fromkeys(nodes, 0)

    def note(self, node: str, message: Mapping[str, Any]) -> None:
        """Messages of one node come in their order."""
        self._steps[node] = int(message.get("steps_done", self._steps.get(node, 0)))
        self._left_over[node] = int(message.get("left_over", self._left_over.get(node, 0)))

    @property
    def steps(self) -> dict[str, int]:
        """Batches with rows that the program of each node took."""
        return dict(self._steps)

    @property
    def left_over(self) -> dict[str, int]:
        """Rows that were dropped, of nodes that dropped some."""
        return {node: rows for node, rows in self._left_over.items() if rows}

    def warnings(self, rows_fed: int) -> Iterator[Warned]:
        """A warning when much of what was fed was dropped."""
        dropped = self.left_over
        total = sum(dropped.values())
        if rows_fed and total > _LEFT_OVER * rows_fed:
            shares = ", ".join(f"{node} {rows}" for node, rows in dropped.items())
            yield Warned(
                id="rows-left-over",
                message=f"equal_steps left out {total} of {rows_fed} rows ({shares}), because other nodes got fewer",
                hint="Spread the rows: df.repartition(n), with n a multiple of the nodes and every partition of the same size.",
            )
