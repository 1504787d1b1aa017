"""How many steps all nodes make in one epoch, agreed on ahead of time (`equal_steps`): the driver's side, without I/O.

Every node tells how many whole batches it has rows for, and whether more can come. What all of them have is granted at once, so a
node that holds some batches ahead never waits for an answer. The number is final when the node that has least gets no more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tfos_core.errors import FeedError

__all__ = ("Agreement", "Agreements", "GrantSteps")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSteps:
    """Let every node make `steps` steps of the epoch in all; `final`: there will be no more."""

    seq: int
    steps: int
    final: bool

    def to_message(self) -> dict[str, Any]:
        """For the control channel."""
        return {"op": "feed.steps", "seq": self.seq, "steps": self.steps, "final": self.final}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """What a node said last: the steps that it has rows for, the rows that it got, and whether that is all."""

    steps: int
    rows: int
    batch_size: int
    ended: bool
    allow_empty: bool


class Agreement:
    """One epoch (`seq`). A node that has left makes no more steps than were granted by then."""

    def __init__(self, seq: int, nodes: Iterable[str]) -> None:
        self.seq = seq
        self._missing = set(nodes)
        self._words: dict[str, _Word] = {}
        self._limit: int | None = None
        self._granted = 0
        self._final = False

    def told(self, node: str, word: _Word) -> GrantSteps | None:
        """A node said how many steps it can make; what can be granted now, if that is news."""
        self._missing.discard(node)
        self._words[node] = word
        return self._news()

    def left(self, node: str) -> GrantSteps | None:
        """A node takes no more rows: the others must not go on without it."""
        self._missing.discard(node)
        self._words.pop(node, None)
        if self._limit is None:
            self._limit = self._granted
        return self._news()

    def excused(self, node: str) -> GrantSteps | None:
        """A node takes its rows in another way (`next_batch`), so the others do not wait for it."""
        self._missing.discard(node)
        self._words.pop(node, None)
        return self._news() if self._words else None

    def problem(self) -> FeedError | None:
        """Why the epoch can not be trained on: not one step for everybody, and nobody said that this may be."""
        if not self._final or self._granted or self._limit is not None or all(word.allow_empty for word in self._words.values()):
            return None
        size = max(word.batch_size for word in self._words.values())
        least = min(word.rows for word in self._words.values())
        poor = sorted(node for node, word in self._words.items() if word.rows == least)
        rows = ", ".join(f"{node} {word.rows}" for node, word in sorted(self._words.items()))
        got = "no row" if least == 0 else f"only {least} rows of an epoch, less than a batch of {size}"
        return FeedError(
            f"equal_steps: {', '.join(poor)} got {got}, so there is not one step that all nodes can make (rows: {rows})",
            "Spread the rows: df.repartition(n), with n a multiple of the nodes; or take a smaller batch. "
            "as_dataset(..., allow_empty=True) accepts epochs without steps.",
            poor[0],
        )

    def _news(self) -> GrantSteps | None:
        if self._missing or self._final:
            return None
        steps = min((word.steps for word in self._words.values()), default=self._granted)
        if self._limit is not None:
            steps = min(steps, self._limit)
        steps = max(steps, self._granted)
        final = self._limit is not None or any(word.ended and word.steps <= steps for word in self._words.values())
        if steps == self._granted and not final:
            return None
        self._granted, self._final = steps, final
        return GrantSteps(seq=self.seq, steps=steps, final=final)


class Agreements:
    """The epochs of one feed. A node may still be busy with one while the next is being fed; not thread-safe."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._nodes = set(nodes)
        self._left: set[str] = set()
        self._open: dict[int, Agreement] = {}

    def told(self, node: str, message: Mapping[str, Any]) -> tuple[list[GrantSteps], FeedError | None]:
        """A node's `feed.steps` message; returns what to grant to every node, and why the feed can not go on."""
        if message.get("out"):
            return self._without(node, leaving=False), None
        seq = int(message["seq"])
        known = self._open.get(seq)
        if known is None:
            known = self._open[seq] = Agreement(seq, self._nodes)
            for gone in sorted(self._left):
                known.left(gone)
            # Nobody is two epochs behind: the next epoch is fed when all rows of this one were taken.
            self._open = {number: agreement for number, agreement in self._open.items() if number > seq - 3}
        word = _Word(
            steps=int(message["steps"]),
            rows=int(message["rows"]),
            batch_size=int(message["batch_size"]),
            ended=bool(message["ended"]),
            allow_empty=bool(message.get("allow_empty")),
        )
        grant = known.told(node, word)
        problem = known.problem() if grant is not None else None
        return [grant] if grant is not None and problem is None else [], problem

    def left(self, node: str) -> list[GrantSteps]:
        """A node takes no more rows of any epoch."""
        return self._without(node, leaving=True) if node in self._nodes else []

    def _without(self, node: str, *, leaving: bool) -> list[GrantSteps]:
        if leaving:
            self._left.add(node)
        else:
            self._nodes.discard(node)
        grants = [agreement.left(node) if leaving else agreement.excused(node) for agreement in self._open.values()]
        return [grant for grant in grants if grant is not None]
