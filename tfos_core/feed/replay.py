"""Epochs that nodes replay from their caches: the driver's side. No Spark job runs; nodes are told, and say when they are through.

Only when every row of the data is in the cache of a node that still takes rows. Otherwise Spark feeds, as it does without a cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tfos_core.errors import FeedTimeoutError
from tfos_core.events import EventSink, Warned
from tfos_core.feed.keeping import NodeCache
from tfos_core.feed.ledger import Instruction, Ledger, SendEnd

__all__ = ("NodeCaches", "ReplayLedger")

#: Nodes report what they consumed at most four times a second, so that a word may be that old.
_SLACK_S = 0.5
_BIGGER = "Raise data.cache_disk (NodeCache.disk_bytes), or use more nodes; until then later epochs cost what the first one costs."


class ReplayLedger(Ledger):
    """A replayed epoch: every node has its share of the partitions, and is through when it says so."""

    def __init__(self, *, seq: int, fed: Ledger, nodes: Iterable[str], closed: Collection[str], clock: Callable[[], float]) -> None:
        nodes = tuple(nodes)
        super().__init__(seq=seq, partitions=fed.partitions, nodes=nodes, closed=closed)
        self.spec = fed.spec
        self._clock = clock
        self._shares = fed.partitions_per_node
        self._left = {node: clock() for node in nodes if node not in closed}
        self._cut: set[str] = set()

    @property
    def partitions_done(self) -> int:
        """Partitions of nodes that are through."""
        return self.partitions - sum(self._shares.get(node, 0) for node in self._left)

    @property
    def partitions_discarded(self) -> int:
        """Partitions of nodes that ended before they were through."""
        return sum(self._shares.get(node, 0) for node in self._cut)

    @property
    def is_over(self) -> bool:
        """Whether every node is through, or takes no more rows."""
        return not self._left

    def slowest(self) -> tuple[str, float]:
        """The node that has consumed nothing for the longest time, of those that are not through, and since when."""
        return min(self._left.items(), key=lambda entry: entry[1])

    def node_rows(self, node: str, rows: int) -> None:
        """A node says how many rows of this epoch it has consumed in all."""
        if rows > self.rows_per_node.get(node, 0) and node in self._left:
            self._left[node] = self._clock()
        super().node_rows(node, rows)

    def drained(self, node: str, partition: int, attempt: int, rows: int) -> list[Instruction]:
        """A node is through."""
        self.node_rows(node, rows)
        if self._left.pop(node, None) is None:
            return []
        return [SendEnd(node=node, spec=self.spec)]

    def node_closed(self, node: str) -> list[Instruction]:
        """A node takes no more rows."""
        if self._left.pop(node, None) is not None:
            self._cut.add(node)
        return []


class NodeCaches:
    """The caches of all nodes, for one train call.

    Args:
        tell: sends a message to a node; must not wait.
        changed: of the coordinator's lock; notified after every message of a node, and when the feed is aborted.
        check: raises when the feed was aborted.
        closed: nodes that take no more rows; grows.
    """

    def __init__(
        self,
        options: NodeCache,
        *,
        nodes: Iterable[str],
        tell: Callable[[str, dict[str, Any]], None],
        changed: threading.Condition,
        check: Callable[[], None],
        closed: Collection[str],
        emit: EventSink,
        feed_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._nodes = tuple(nodes)
        self._tell = tell
        self._changed = changed
        self._check = check
        self._closed = closed
        self._emit = emit
        self._feed_timeout = feed_timeout
        self._clock = clock
        self._words: dict[str, Mapping[str, Any]] = {}
        self._fed: Ledger | None = None
        self._gave_up = False

    def kept_epoch(self, *, is_last: bool) -> Mapping[str, Any] | None:
        """What feed tasks of the next epoch say to nodes, so that they keep its rows; None when nobody needs them."""
        return None if is_last or self._gave_up else self._options.to_dict()

    def note(self, node: str, message: Mapping[str, Any]) -> None:
        """A node says what it has kept; the lock is held."""
        self._words[node] = message

    def collect(self, fed: Ledger) -> None:
        """An epoch was fed that nodes were to keep: learn whether they have.

        Raises:
            FeedTimeoutError: a node does not answer.
        """
        with self._changed:
            self._words = {}
            for node in self._open():
                self._tell(node, {"op": "feed.cache", "seq": fed.seq})
            until = self._clock() + self._feed_timeout
            while missing := [node for node in self._open() if node not in self._words]:
                self._check()
                left = until - self._clock()
                if left <= 0:
                    raise FeedTimeoutError(
                        f"node {missing[0]} did not say within {self._feed_timeout:g} s what it has kept", None, missing[0]
                    )
                self._changed.wait(left)
            problem, hint = self._judge(fed)
            self._fed = None if problem else fed
        if problem:
            self._give_up(problem, hint)

    def can_replay(self) -> bool:
        """Whether the next epoch needs no Spark."""
        if self._fed is None:
            return False
        gone = [node for node, rows in self._fed.rows_per_node.items() if rows and node in self._closed]
        if gone:
            self._fed = None
            self._give_up(f"{', '.join(gone)} takes no more rows, and what it had kept is needed", None)
        return not gone

    def start(self, seq: int, epoch: int, *, again: bool) -> ReplayLedger:
        """Make the nodes replay; the lock is held. `again`: another epoch follows."""
        assert self._fed is not None  # noqa: S101 - can_replay() said so
        ledger = ReplayLedger(seq=seq, fed=self._fed, nodes=self._nodes, closed=self._closed, clock=self._clock)
        shuffle = self._options.seed if self._options.shuffle else None
        for node in self._open():
            message = {"op": "feed.replay", "seq": seq, "kept": self._fed.seq, "epoch": epoch, "shuffle": shuffle, "again": again}
            self._tell(node, message)
        return ledger

    def await_end(self, ledger: ReplayLedger) -> None:
        """Wait until every node is through; the lock is held.

        Raises:
            FeedTimeoutError: a node consumed no row for `feed_timeout` seconds.
        """
        while not ledger.is_over:
            self._check()
            node, since = ledger.slowest()
            left = since + self._feed_timeout + _SLACK_S - self._clock()
            if left <= 0:
                raise FeedTimeoutError(
                    f"node {node} consumed no row for {self._feed_timeout:g} seconds (from its cache)",
                    "Does the function still call next_batch()? Raise feed_timeout when one step may take longer.",
                    node,
                )
            self._changed.wait(left)
        self._check()

    def _open(self) -> list[str]:
        return [node for node in self._nodes if node not in self._closed]

    def _judge(self, fed: Ledger) -> tuple[str | None, str | None]:
        """Why later epochs have to be fed, if they have to."""
        for node in self._open():
            if self._words[node]["problem"]:
                return f"{node} can not keep its rows: {self._words[node]['problem']}", _BIGGER
        rows = fed.rows_per_node
        short = [node for node, count in rows.items() if count and (node in self._closed or self._words[node]["rows"] != count)]
        if short or fed.partitions_discarded:
            return f"not every row is in the cache of a node that takes rows ({', '.join(short) or 'some were discarded'})", None
        return None, None

    def _give_up(self, problem: str, hint: str | None) -> None:
        self._gave_up = True
        for node in self._open():
            self._tell(node, {"op": "feed.forget"})
        self._emit(Warned(id="cache-not-used", message=f"Spark feeds every epoch, because {problem}", hint=hint or ""))
