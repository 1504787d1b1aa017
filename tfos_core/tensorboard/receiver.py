"""Takes the pieces of event files that nodes send, and writes them in a thread of its own, because disks are slow sometimes."""

from __future__ import annotations

import base64
import contextlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tfos_core import events
from tfos_core.errors import ProtocolError, TfosError
from tfos_core.tensorboard.options import FileSink

__all__ = ("FileReceiver",)

logger = logging.getLogger(__name__)

#: A node waits for an answer after every piece; one that does not is broken.
_MOST_UNDER_WAY = 2
#: What is left to write when the last node is gone takes no longer, in seconds.
_CLOSE_S = 5.0

_GONE = "gone"


class FileReceiver:
    """Gets every message whose op starts with `files.`.

    Args:
        sink: gets the pieces, from one thread.
        send: (node, message) to a node; never waits.
        emit: for warnings.
    """

    def __init__(self, sink: FileSink, send: Callable[[str, Mapping[str, Any]], None], emit: events.EventSink) -> None:
        self._sink = sink
        self._send = send
        self._emit = emit
        self._queue: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._under_way: Counter[str] = Counter()
        self._open: set[str] = set()
        self._refused: set[str] = set()
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="tfos-event-files", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def handle(self, node: str, message: Mapping[str, Any]) -> None:
        """A node sent something; never waits.

        Raises:
            ProtocolError: the node does not wait for answers.
        """
        if message["op"] == "files.piece":
            with self._changed:
                if self._under_way[node] >= _MOST_UNDER_WAY:
                    raise ProtocolError(f"it sent pieces of event files without waiting for the answers to {_MOST_UNDER_WAY}")
                self._under_way[node] += 1
        elif message["op"] == "files.begin":
            with self._changed:
                self._open.add(node)
        self._queue.put((node, message))

    def gone(self, node: str) -> None:
        """A node will not send any more."""
        self._queue.put((node, {"op": _GONE}))

    def wait_done(self, nodes: Collection[str], timeout: float, *, is_over: Callable[[], bool]) -> bool:
        """Wait until these nodes have sent everything or are gone, or `is_over`; whether they have. `wake` makes it look again."""
        names = set(nodes)
        with self._changed:
            self._changed.wait_for(lambda: is_over() or not self._open & names, timeout)
            return not self._open & names

    def wake(self) -> None:
        """Make `wait_done` look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Write what has come, and end the thread; may be called twice."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            node, message = entry
            if message["op"] == "files.piece":
                self._take(node, message)
            elif message["op"] in ("files.done", _GONE):
                with self._changed:
                    self._open.discard(node)
                    self._changed.notify_all()

    def _take(self, node: str, message: Mapping[str, Any]) -> None:
        answer = {"op": "files.taken"}
        if node in self._refused:
            answer = {"op": "files.refused"}
        else:
            try:
                data = base64.b64decode(message["data"], validate=True)
                self._sink(node, str(message["path"]), int(message["offset"]), data)
            except Exception as exc:  # noqa: BLE001 - the sink may be anybody's, and must not end the run
                self._refuse(node, exc)
                answer = {"op": "files.refused"}
        with self._changed:
            self._under_way[node] -= 1
        with contextlib.suppress(TfosError):
            self._send(node, answer)

    def _refuse(self, node: str, exc: Exception) -> None:
        """No more of this node; told once for all nodes, because a full disk hits every one."""
        self._refused.add(node)
        logger.warning("event files of %s are not collected any more: %s: %s", node, type(exc).__name__, exc)
        if not self._warned:
            self._warned = True
            self._emit(
                events.Warned(
                    id="tensorboard-collect",
                    message=f"event files of {node} can not be kept: {exc}",
                    hint="They stay in the folder of its executor.",
                )
            )
