"""What the driver knows of every node, and which failure explains the others; knows neither Spark nor sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tfos_core.outcome import Outcome
from tfos_core.topology import ClusterPlan, InputMode, NodeSlot, Role

__all__ = ("NodeFailure", "NodeState", "NodeTable")


class NodeState(StrEnum):
    """The life of a node as the driver sees it."""

    EXPECTED = "expected"
    REGISTERED = "registered"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


_OPEN = (NodeState.EXPECTED, NodeState.REGISTERED, NodeState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """One failed node, with the last lines that it printed."""

    node: str
    host: str
    executor_id: int
    outcome: Outcome
    last_lines: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Node:
    slot: NodeSlot
    state: NodeState = NodeState.EXPECTED
    host: str = ""
    connected: bool = False
    has_server: bool = False
    joined: bool = False
    started: float = 0.0


class NodeTable:
    """Thread-safe; `wait` wakes at every change.

    A node is *finishing* or *serving*. The cluster is done when every finishing node has ended; serving nodes are stopped then.
    Serving are ps and evaluators, nodes that sit in `Server.join()`, and nodes that started a server, are not fed, and have a
    peer that trains without one (a coordinator). When all that train have servers, they train between graphs and each ends by
    itself.
    """

    def __init__(self, plan: ClusterPlan, input_mode: InputMode) -> None:
        self._changed = threading.Condition()
        self._is_fed = input_mode is InputMode.SPARK
        self._nodes = {slot.name: _Node(slot=slot) for slot in plan.slots}
        self._failures: list[NodeFailure] = []
        self._last_finish: float | None = None
        self._closing = False
        self._has_vanished = False
        self._registered = 0

    # ---- changes -----------------------------------------------------------------------------------------------------------

    def registered(self, name: str, host: str) -> None:
        """A node has registered."""
        with self._changed:
            node = self._nodes[name]
            node.state, node.host, node.connected = NodeState.REGISTERED, host, True
            self._registered += 1
            self._changed.notify_all()

    def running(self, name: str) -> None:
        """The node's process was started."""
        with self._changed:
            node = self._nodes[name]
            if node.state is NodeState.REGISTERED:
                node.state, node.started = NodeState.RUNNING, time.monotonic()
            self._changed.notify_all()

    def has_server(self, name: str) -> None:
        """The node started a server of its own."""
        with self._changed:
            self._nodes[name].has_server = True
            self._changed.notify_all()

    def joined(self, name: str) -> None:
        """The node sits in `Server.join()`, which never returns, so others decide when it is done."""
        with self._changed:
            self._nodes[name].joined = True
            self._changed.notify_all()

    def ended(self, name: str, outcome: Outcome, last_lines: tuple[str, ...] = ()) -> NodeFailure | None:
        """The node's process ended; returns the failure when it ended badly and that is news.

        A server that loses its last client may end badly just before it is stopped: no failure, because its work was done.
        """
        with self._changed:
            node = self._nodes[name]
            if node.state in (NodeState.ENDED, NodeState.FAILED):
                return None
            self._changed.notify_all()
            if outcome.ok or (node.slot.role is not Role.EVALUATOR and self._serves(node) and self._is_done()):
                node.state = NodeState.ENDED
                self._last_finish = time.monotonic()
                return None
            node.state = NodeState.FAILED
            failure = NodeFailure(
                node=name, host=node.host, executor_id=node.slot.executor_id, outcome=outcome, last_lines=last_lines
            )
            self._failures.append(failure)
            return failure

    def disconnected(self, name: str) -> NodeFailure | None:
        """The node's control channel closed; a failure when it had not ended before."""
        with self._changed:
            self._nodes[name].connected = False
            self._changed.notify_all()
            if self._closing:
                return None
            self._has_vanished = self._has_vanished or self._nodes[name].state in _OPEN
            outcome = Outcome(
                ok=False, error=f"{name} went away without a word: its supervisor, its host or the network was lost", lost=True
            )
            return self.ended(name, outcome)

    def expect_goodbyes(self) -> None:
        """From now on nodes are told to go, so that a closed channel is no failure."""
        with self._changed:
            self._closing = True

    def wake(self) -> None:
        """Make every `wait` look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until `condition` holds, at most `timeout` seconds; whether it does."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    # ---- questions ---------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many nodes the cluster has."""
        return len(self._nodes)

    @property
    def registered_count(self) -> int:
        """How many nodes have registered."""
        return self._registered

    def missing(self) -> tuple[str, ...]:
        """The nodes that have not registered."""
        return tuple(name for name, node in self._nodes.items() if node.state is NodeState.EXPECTED)

    def unfinished(self) -> tuple[str, ...]:
        """The finishing nodes that have not ended."""
        with self._changed:
            return tuple(name for name, node in self._nodes.items() if node.state in _OPEN and not self._serves(node))

    def has_trained(self) -> bool:
        """Whether a node that trains has ended by itself; false while, or when, all of them serve."""
        with self._changed:
            return any(node.slot.role.is_fed and node.state is NodeState.ENDED for node in self._nodes.values())

    def left_early(self, name: str) -> bool:
        """Whether this is a ps that has ended while others still train."""
        with self._changed:
            node = self._nodes[name]
            return node.slot.role is Role.PS and node.state is NodeState.ENDED and not self._closing and not self._is_done()

    def evaluating(self) -> tuple[str, ...]:
        """The evaluators that still run."""
        return tuple(
            name for name, node in self._nodes.items() if node.slot.role is Role.EVALUATOR and node.state is NodeState.RUNNING
        )

    def ended_well(self) -> tuple[str, ...]:
        """The nodes whose functions returned, or that were stopped."""
        return tuple(name for name, node in self._nodes.items() if node.state is NodeState.ENDED)

    def connected(self) -> tuple[str, ...]:
        """The nodes whose supervisors are still there."""
        return tuple(name for name, node in self._nodes.items() if node.connected)

    def seconds_running(self, name: str) -> float:
        """Since the node's process was started; 0 when it was not."""
        started = self._nodes[name].started
        return time.monotonic() - started if started else 0.0

    @property
    def last_finish(self) -> float | None:
        """When the latest node that ended well did, on the monotonic clock."""
        return self._last_finish

    def has_vanished(self) -> bool:
        """Whether a node went away without a word, so that nobody has cleared up behind it."""
        return self._has_vanished

    def first_failure(self) -> NodeFailure | None:
        """The failure that explains the others: the earliest that does not look like the consequence of another."""
        with self._changed:
            causes = [failure for failure in self._failures if not failure.outcome.collateral]
            return next(iter(causes or self._failures), None)

    def _is_done(self) -> bool:
        return not any(node.state in _OPEN and not self._serves(node) for node in self._nodes.values())

    def _serves(self, node: _Node) -> bool:
        if node.slot.role.is_serving or node.joined:
            return True
        if not node.has_server or self._is_fed:
            return False
        return any(other.slot.role.is_fed and not other.has_server for other in self._nodes.values())
