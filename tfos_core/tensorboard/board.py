"""TensorBoard and the event files as the driver sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tfos_core import events
from tfos_core.reservation import NodeRecord
from tfos_core.tensorboard.options import FileSink, TensorBoardOptions
from tfos_core.tensorboard.receiver import FileReceiver

__all__ = ("ClusterBoard", "board_url")

#: After a good end, nodes get so long to send the rest of their event files before they are told to go, in seconds.
_REST_S = 60.0


def board_url(host: str, port: int) -> str:
    """`http://host:port`, with brackets around an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ClusterBoard:
    """One cluster's. `handle` and `gone` are called in the server's thread and never wait.

    Args:
        node: the node that runs TensorBoard, empty when none does.
        sink: gets the event files; None when they are not collected.
    """

    def __init__(self, options: TensorBoardOptions, *, node: str, sink: FileSink | None, emit: events.EventSink) -> None:
        self.node = node
        self._options = options
        self._sink = sink
        self._emit = emit
        self._files: FileReceiver | None = None
        self._lock = threading.Lock()
        self._url: str | None = None
        self._keeping = False
        self._let_go = threading.Event()

    @property
    def url(self) -> str | None:
        """Where TensorBoard answers, or will in a moment; None when it is not asked for, or does not run."""
        return self._url

    def open(self, send: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Be ready for what nodes send; `send` answers them."""
        if self._sink is not None:
            self._files = FileReceiver(self._sink, send, self._emit)
            self._files.start()

    def registered(self, record: NodeRecord) -> None:
        """A node has registered, maybe with the port of its TensorBoard."""
        if record.tb_port and record.name == self.node:
            host = record.host if self._options.bind == "node" else "127.0.0.1"
            self._url = board_url(host, record.tb_port)

    def handle(self, node: str, message: Mapping[str, Any]) -> None:
        """A node said something about its TensorBoard or its event files.

        Raises:
            ProtocolError: it sends more than it may.
        """
        op = message["op"]
        if op == "tensorboard.up" and self._url is not None:
            self._emit(events.TensorBoardStarted(node=node, url=self._url, host=str(message["host"])))
        elif op == "tensorboard.down":
            self._down()
            self._emit(events.Warned(id="tensorboard", message=str(message["message"]), hint=str(message["hint"])))
        elif op.startswith("files.") and self._files is not None:
            self._files.handle(node, message)

    def gone(self, node: str) -> None:
        """A node's channel closed."""
        if node == self.node:
            self._down()
        if self._files is not None:
            self._files.gone(node)

    def await_files(self, nodes: Collection[str], *, is_over: Callable[[], bool]) -> None:
        """Wait until these nodes, which have ended, have sent the rest of their event files; at most a minute."""
        if self._files is not None:
            self._files.wait_done(nodes, _REST_S, is_over=is_over)

    def keep(self, stop_others: Callable[[str], None]) -> None:
        """Leave TensorBoard up for as long as was asked, unless it is let go; `stop_others(node)` ends all nodes but its own."""
        with self._lock:
            self._keeping = self._url is not None and self._options.keep_secs > 0
            if not self._keeping:
                return
        stop_others(self.node)
        self._emit(events.TensorBoardKept(node=self.node, url=self._url or "", seconds=self._options.keep_secs))
        self._let_go.wait(self._options.keep_secs)
        with self._lock:
            self._keeping = False

    def let_go(self) -> bool:
        """End all waiting here; whether the job is done and only TensorBoard was waited for."""
        with self._lock:
            was_keeping = self._keeping
            self._let_go.set()
        if self._files is not None:
            self._files.wake()
        return was_keeping

    def close(self) -> None:
        """Write what nodes have sent; may be called twice."""
        self._down()
        if self._files is not None:
            self._files.close()

    def _down(self) -> None:
        with self._lock:
            self._url = None
            # Nothing is left to be kept.
            if self._keeping:
                self._let_go.set()
