"""Clusters of the engine itself, driven from a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from testbed.waiting import Deadline

if TYPE_CHECKING:
    from tfos_core.cluster import TFCluster

__all__ = ("Recorder", "started_cluster")


class Recorder:
    """An event sink whose events can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[Any] = []

    def __call__(self, event: Any) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def all(self, kind: str) -> list[Any]:
        """The events of this kind so far."""
        with self._changed:
            return [event for event in self._events if event.kind == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds of all events, in order."""
        with self._changed:
            return [event.kind for event in self._events]

    def wait_for(self, kind: str, deadline_s: float = 60.0) -> Any:
        """The first event of this kind, as soon as it is there."""
        deadline = Deadline(deadline_s)
        with self._changed:
            while True:
                found = next((event for event in self._events if event.kind == kind), None)
                if found is not None:
                    return found
                if deadline.is_over:
                    raise AssertionError(f"no {kind} within {deadline_s:g} s; there were {[e.kind for e in self._events]}")
                self._changed.wait(deadline.left)


@contextlib.contextmanager
def started_cluster(
    sc: Any,
    function: Callable[[Any, Any], Any],
    args: Any,
    nodes: int = 2,
    *,
    on_event: Callable[[Any], None] | None = None,
    options: dict[str, Any] | None = None,
    spark_mode: bool = True,
    **settings: Any,
) -> Iterator[TFCluster]:
    """`cluster.run`, and a shutdown at the end also when the test has failed.

    Args:
        options: fields of `ClusterOptions`.
        settings: further arguments of `cluster.run`.
    """
    from tfos_core import cluster
    from tfos_core.errors import TfosError

    mode = cluster.InputMode.SPARK if spark_mode else cluster.InputMode.TENSORFLOW
    fields: dict[str, Any] = dict(options or {}) | ({"on_event": on_event} if on_event else {})
    chosen = cluster.ClusterOptions(**fields)
    settings = {"num_ps": 0, "reservation_timeout": 60} | settings
    started = cluster.run(sc, function, args, nodes, input_mode=mode, options=chosen, **settings)
    try:
        yield started
    except BaseException as exc:
        # A node that waits for rows that no longer come would make shutdown wait for it.
        chosen.cancellation.request(f"the test failed: {exc}")
        raise
    finally:
        with contextlib.suppress(TfosError):
            started.shutdown(timeout=30)
