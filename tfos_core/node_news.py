"""What nodes say over the control channel, turned into the state of the cluster and into events; runs in the server's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.node_table import NodeFailure, NodeTable
from tfos_core.options import ClusterOptions
from tfos_core.outcome import Outcome
from tfos_core.reservation import NodeRecord
from tfos_core.tensorboard.board import ClusterBoard

if TYPE_CHECKING:
    from tfos_core.feed.coordinator import FeedCoordinator

__all__ = ("FailureListener", "NodeNews")

logger = logging.getLogger(__name__)


class FailureListener(Protocol):
    """Hears of every node that failed."""

    def noticed(self, failure: NodeFailure) -> None:
        """A node failed; must not wait."""


class NodeNews:
    """The callbacks of a cluster's reservation server; `feed` is set when the cluster is fed, `on_stacks` takes their stacks."""

    def __init__(
        self, table: NodeTable, watch: FailureListener, options: ClusterOptions, report: ClusterReport, board: ClusterBoard
    ) -> None:
        self._table = table
        self._watch = watch
        self._options = options
        self._emit = options.on_event
        self._report = report
        self._board = board
        self._changes = {"node.started": table.running, "node.serving": table.has_server, "node.joined": table.joined}
        self.feed: FeedCoordinator | None = None
        self.on_stacks: Callable[[str, Mapping[str, Any]], None] = lambda node, message: None

    def on_registered(self, record: NodeRecord) -> None:
        """A node has registered."""
        # The event goes first: the table wakes the starting thread, whose next event says that the cluster is ready.
        self._emit(
            events.NodeRegistered(
                node=record.name,
                executor_id=record.executor_id,
                host=record.host,
                port=record.port,
                pid=record.pid,
                registered=self._table.registered_count + 1,
                expected=self._table.size,
                gpus=record.gpus,
            )
        )
        self._board.registered(record)
        self._report.gpus[record.name] = record.gpus
        self._table.registered(record.name, record.host)

    def on_message(self, node: str, message: dict[str, Any]) -> None:
        """A registered node said something."""
        op = str(message.get("op", ""))
        if op.startswith("feed."):
            if self.feed is not None:
                self.feed.handle(node, message)
        elif op.startswith(("tensorboard.", "files.")):
            self._board.handle(node, message)
        elif op == "node.warning":
            self._emit(events.Warned(id=str(message["id"]), message=str(message["message"]), hint=str(message["hint"])))
        elif op == "node.output":
            self._on_output(node, message)
        elif op in ("node.result", "node.export", "node.checkpoint"):
            self._on_work(node, op, message)
        elif op == "node.stacks":
            self.on_stacks(node, message)
        elif op in self._changes:
            self._changes[op](node)
        elif op == "node.ended":
            self._on_ended(node, Outcome.from_dict(message), tuple(message["last_lines"]))
        else:
            logger.warning("node %s sent a message of unknown kind %r", node, op)

    def on_disconnect(self, node: str) -> None:
        """A node's channel closed; that is bad news unless the node had ended."""
        self._board.gone(node)
        failure = self._table.disconnected(node)
        if failure is not None:
            self._watch.noticed(failure)

    def _on_output(self, node: str, message: dict[str, Any]) -> None:
        lines = list(message["lines"])
        if message.get("dropped"):
            lines.insert(0, f"[{message['dropped']} lines were left out here; all of them are in the executor's folder]")
        self._options.on_output(node, lines)

    def _on_work(self, node: str, op: str, message: dict[str, Any]) -> None:
        """A program has something to show."""
        if op == "node.result":
            self._report.values[node] = message["value"]
        elif op == "node.export":
            self._report.exports.append(str(message["path"]))
            self._report.exports_by_node.setdefault(node, []).append(str(message["path"]))
        else:
            epoch = message["epoch"]
            if epoch is None:
                # A program that does not count epochs (next_batch) has seen at least those that were taken whole.
                epoch = self.feed.epochs_fed if self.feed is not None else 0
            self._report.add_checkpoint(epoch=int(epoch), step=int(message["step"] or 0))

    def _on_ended(self, node: str, outcome: Outcome, last_lines: tuple[str, ...]) -> None:
        failure = self._table.ended(node, outcome, last_lines)
        if failure is not None:
            self._watch.noticed(failure)
            return
        if self._table.left_early(node):
            self._emit(
                events.Warned(
                    id="ps-ended-early",
                    message=f"the function of {node} returned while others still train",
                    hint="A parameter server starts its server and stays in server.join() until it is stopped.",
                )
            )
        seconds = round(self._table.seconds_running(node), 3)
        self._emit(events.NodeFinished(node=node, seconds=seconds, value=self._report.values.get(node)))
        if self.feed is not None:
            self.feed.node_ended(node)
