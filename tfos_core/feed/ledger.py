"""Who feeds what, of one epoch: a pure state machine. Events come in, instructions come out.

A node may be told END as soon as no row can still reach it: every partition is claimed by some node, and all that this node claimed
are drained. Waiting for the end of the Spark job instead deadlocks synchronous training on three partitions and two nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tfos_core.errors import FeedError

if TYPE_CHECKING:
    from tfos_core.feed.tasks import Outcome

__all__ = ("Conflict", "Grant", "Instruction", "Ledger", "Release", "SendEnd", "apply_message", "fed_twice", "message_of", "settle")


class _State(StrEnum):
    HELD = "held"
    RELEASED = "released"
    DRAINED = "drained"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEnd:
    """Tell a node that its epoch has ended."""

    node: str
    spec: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Let a repeated attempt go ahead after dropping its first `rows` rows, or tell it that nothing is left to do."""

    node: str
    partition: int
    attempt: int
    rows: int
    drained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Make a node let go of an earlier attempt."""

    node: str
    partition: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two attempts fed one partition without asking: rows may have been consumed twice."""

    partition: int
    nodes: tuple[str, str]


Instruction = SendEnd | Grant | Release | Conflict


@dataclass(slots=True)
class _Claim:
    node: str
    attempt: int
    state: _State
    rows: int = 0
    waiting: tuple[str, int] | None = None


class Ledger:
    """Events of one epoch (`seq`) of `partitions` partitions over `nodes`."""

    def __init__(self, *, seq: int, partitions: int, nodes: Iterable[str], closed: Iterable[str] = ()) -> None:
        self.seq = seq
        self.partitions = partitions
        self._nodes = tuple(nodes)
        self._closed = set(closed)
        self._ended: set[str] = set()
        self._claims: dict[int, _Claim] = {}
        self._rows: dict[str, int] = dict.fromkeys(self._nodes, 0)
        self._drained_rows: dict[str, int] = dict.fromkeys(self._nodes, 0)
        self._cut_short: set[int] = set()
        # Counted, not searched: a thousand nodes drain thousands of partitions, and each of them may be what a node waited for.
        self._states: Counter[_State] = Counter()
        self._held: Counter[str] = Counter()
        self.spec: Mapping[str, Any] | None = None

    # --- what is known

    @property
    def partitions_done(self) -> int:
        """Partitions of which no row will come any more."""
        return self._states[_State.DRAINED] + self._states[_State.DISCARDED]

    @property
    def partitions_discarded(self) -> int:
        """Partitions that arrived at a node that had already ended, whole or in part."""
        return len(self._cut_short)

    @property
    def rows_per_node(self) -> dict[str, int]:
        """Rows consumed so far."""
        return {node: self._rows_of(node) for node in self._nodes}

    @property
    def partitions_per_node(self) -> dict[str, int]:
        """How many partitions each node has consumed the end of."""
        drained = Counter(claim.node for claim in self._claims.values() if claim.state is _State.DRAINED)
        return {node: drained[node] for node in self._nodes}

    # --- events

    def node_rows(self, node: str, rows: int) -> None:
        """A node says how many rows of this epoch it has consumed in all."""
        self._rows[node] = max(self._rows.get(node, 0), rows)

    def claimed(self, node: str, partition: int, attempt: int) -> list[Instruction]:
        """A first attempt has begun to send."""
        known = self._claims.get(partition)
        if known is not None and known.waiting is None and known.state is not _State.RELEASED:
            if (known.node, known.attempt) == (node, attempt):
                return []
            return [Conflict(partition=partition, nodes=(known.node, node))]
        if known is not None:
            # A repeated attempt has asked already: this one is late, and its node has to let go.
            return [Release(node=node, partition=partition, attempt=attempt)]
        self._add(partition, node, attempt)
        return self._ends()

    def asked(self, node: str, partition: int, attempt: int) -> list[Instruction]:
        """A repeated attempt wants to send."""
        claim = self._claims.get(partition)
        if claim is None:
            self._add(partition, node, attempt)
            return [Grant(node=node, partition=partition, attempt=attempt, rows=0, drained=False), *self._ends()]
        if claim.state in (_State.DRAINED, _State.DISCARDED):
            return [Grant(node=node, partition=partition, attempt=attempt, rows=claim.rows, drained=True)]
        if claim.state is _State.HELD and claim.node not in self._closed:
            claim.waiting = (node, attempt)
            return [Release(node=claim.node, partition=partition, attempt=claim.attempt)]
        return self._hand_over(partition, claim, node, attempt)

    def released(self, node: str, partition: int, attempt: int, rows: int, *, unknown: bool = False) -> list[Instruction]:
        """An attempt ended before its rows were all consumed; `rows` were. `unknown`: the node does not hold it any more."""
        claim = self._claims.get(partition)
        if claim is None or (claim.node, claim.attempt) != (node, attempt) or claim.state is not _State.HELD:
            return []
        if unknown and claim.waiting is None:
            return []
        self._move(claim, _State.RELEASED)
        claim.rows += rows
        self._drained_rows[node] = self._drained_rows.get(node, 0) + rows
        if claim.waiting is None:
            return []
        return self._hand_over(partition, claim, *claim.waiting)

    def drained(self, node: str, partition: int, attempt: int, rows: int) -> list[Instruction]:
        """All rows of an attempt were consumed."""
        claim = self._claims.get(partition) or self._add(partition, node, attempt)
        if claim.state in (_State.DRAINED, _State.DISCARDED):
            return []
        self._drained_rows[node] = self._drained_rows.get(node, 0) + rows
        waiting = claim.waiting
        self._move(claim, _State.DRAINED, node)
        claim.attempt, claim.waiting = attempt, None
        claim.rows += rows
        grants: list[Instruction] = []
        if waiting is not None:
            grants.append(Grant(node=waiting[0], partition=partition, attempt=waiting[1], rows=claim.rows, drained=True))
        return grants + self._ends()

    def discarded(self, node: str, partition: int) -> list[Instruction]:
        """A partition came to a node that takes no more rows."""
        claim = self._claims.get(partition) or self._add(partition, node, 0)
        if claim.state is not _State.DRAINED:
            self._move(claim, _State.DISCARDED)
            self._cut_short.add(partition)
        return self._ends()

    def node_closed(self, node: str) -> list[Instruction]:
        """A node takes no more rows; what it held is discarded."""
        self._closed.add(node)
        for partition, claim in self._claims.items():
            if claim.node == node and claim.state is _State.HELD:
                self._move(claim, _State.DISCARDED)
                self._cut_short.add(partition)
        return self._ends()

    def described(self, spec: Mapping[str, Any]) -> list[Instruction]:
        """A node has seen the first block and describes its elements."""
        self.spec = self.spec or spec
        return self._ends()

    def job_ended(self) -> list[Instruction]:
        """The Spark job is over: whatever was not claimed never comes."""
        for partition in range(self.partitions):
            claim = self._claims.get(partition) or self._add(partition, "", 0)
            if claim.state in (_State.HELD, _State.RELEASED) or not claim.node:
                self._move(claim, _State.DISCARDED)
                self._cut_short.add(partition)
        return self._ends()

    # --- inner

    def _hand_over(self, partition: int, claim: _Claim, node: str, attempt: int) -> list[Instruction]:
        self._move(claim, _State.HELD, node)
        claim.attempt, claim.waiting = attempt, None
        return [Grant(node=node, partition=partition, attempt=attempt, rows=claim.rows, drained=False), *self._ends()]

    def _add(self, partition: int, node: str, attempt: int) -> _Claim:
        claim = self._claims[partition] = _Claim(node, attempt, _State.HELD)
        self._states[_State.HELD] += 1
        self._held[node] += 1
        return claim

    def _move(self, claim: _Claim, state: _State, node: str | None = None) -> None:
        """A claim changes its state, and maybe its node."""
        self._states[claim.state] -= 1
        self._held[claim.node] -= claim.state is _State.HELD
        claim.state, claim.node = state, claim.node if node is None else node
        self._states[state] += 1
        self._held[claim.node] += state is _State.HELD

    def _rows_of(self, node: str) -> int:
        return max(self._rows[node], self._drained_rows[node])

    def _ends(self) -> list[Instruction]:
        if len(self._claims) < self.partitions or len(self._ended) == len(self._nodes):
            return []
        if self._states[_State.RELEASED]:
            # Somebody will feed it again, nobody knows where.
            return []
        instructions: list[Instruction] = []
        for node in self._nodes:
            if node in self._ended or self._held[node]:
                continue
            if self.spec is None and self._states[_State.HELD] and not self._rows_of(node):
                # It needs to know what elements look like, and a node that still has rows will say so.
                continue
            self._ended.add(node)
            instructions.append(SendEnd(node=node, spec=self.spec))
        return instructions


def message_of(instruction: SendEnd | Grant | Release, seq: int, *, final: bool) -> dict[str, Any]:
    """An instruction of epoch `seq` as a message to its node; `final`: no other epoch follows."""
    match instruction:
        case SendEnd(spec=spec):
            return {"op": "feed.end", "seq": seq, "final": final, "spec": spec}
        case Grant(partition=partition, attempt=attempt, rows=rows, drained=drained):
            grant = {"op": "feed.grant", "seq": seq, "partition": partition, "attempt": attempt}
            return {**grant, "rows": rows, "drained": drained}
        case Release(partition=partition, attempt=attempt):
            return {"op": "feed.release", "seq": seq, "partition": partition, "attempt": attempt}


def fed_twice(conflict: Conflict) -> FeedError:
    """A conflict as an error."""
    return FeedError(
        f"partition {conflict.partition} was fed twice, to {conflict.nodes[0]} and {conflict.nodes[1]}: Spark ran its stage again",
        "Rows may have been trained on twice; start the run again.",
        conflict.nodes[1],
        conflict.partition,
    )


def settle(ledger: Ledger, outcome: Outcome) -> list[Instruction]:
    """What a feed task returned, in case its node's own message is still under way."""
    if outcome.state == "drained":
        return ledger.drained(outcome.node, outcome.partition, 0, outcome.rows)
    return ledger.discarded(outcome.node, outcome.partition)


def apply_message(ledger: Ledger, node: str, message: Mapping[str, Any]) -> list[Instruction]:
    """What follows from a message of a node's hub about its partitions; nothing from others."""
    partition, attempt = int(message.get("partition", -1)), int(message.get("attempt", 0))
    match message.get("op"):
        case "feed.claim":
            return ledger.claimed(node, partition, attempt)
        case "feed.ask":
            return ledger.asked(node, partition, attempt)
        case "feed.released":
            return ledger.released(node, partition, attempt, int(message["rows"]), unknown=bool(message.get("unknown")))
        case "feed.drained":
            return ledger.drained(node, partition, attempt, int(message["rows"]))
        case "feed.discarded":
            return ledger.discarded(node, partition)
        case "feed.spec":
            return ledger.described(message["spec"])
        case _:
            return []
