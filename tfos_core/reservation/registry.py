"""The table of registered nodes, safe to use from several threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tfos_core.errors import ConfigError, DuplicateNodeError, ReservationError, ReservationTimeoutError
from tfos_core.reservation.record import NodeRecord

__all__ = ("Reservations",)


class Reservations:
    """Collects `required` nodes; `expected` are their names, when they are known beforehand."""

    def __init__(self, required: int, *, expected: Sequence[str] = ()) -> None:
        if required < 1:
            raise ConfigError(f"a cluster of {required} nodes was asked for, but it has at least one")
        if expected and len(set(expected)) != required:
            raise ConfigError(f"{required} nodes were asked for, but the expected names are {', '.join(expected)}")
        self.required = required
        self.expected = tuple(expected)
        self._known = frozenset(expected)
        self._changed = threading.Condition()
        self._records: dict[str, NodeRecord] = {}
        self._by_executor: dict[int, NodeRecord] = {}

    def add(self, record: NodeRecord | Mapping[str, Any]) -> None:
        """Take a node in.

        Raises:
            DuplicateNodeError: its name or its executor id is taken; the message names both processes.
            ReservationError: the cluster has no such node, or is complete.
        """
        record = record if isinstance(record, NodeRecord) else NodeRecord.from_dict(record)
        with self._changed:
            if other := self._records.get(record.name) or self._by_executor.get(record.executor_id):
                raise DuplicateNodeError(
                    f"{record.identity} can not register: {other.identity} already did",
                    "Node tasks are not repeated; look at the executors' logs for what started this one twice.",
                )
            if self._known and record.name not in self._known:
                raise ReservationError(f"{record.identity} can not register: this cluster expects {_listed(self.expected)}")
            if len(self._records) >= self.required:
                raise ReservationError(f"{record.identity} can not register: all {self.required} nodes already did")
            self._records[record.name] = self._by_executor[record.executor_id] = record
            self._changed.notify_all()

    def done(self) -> bool:
        """Whether all nodes have registered."""
        return self.remaining() == 0

    def get(self) -> list[NodeRecord]:
        """The nodes registered so far, in the order of their executor ids."""
        with self._changed:
            return sorted(self._records.values(), key=lambda record: record.executor_id)

    def remaining(self) -> int:
        """How many nodes have not registered yet."""
        with self._changed:
            return self.required - len(self._records)

    def missing(self) -> tuple[str, ...]:
        """The names of the nodes that have not registered; empty when names were not given."""
        with self._changed:
            return tuple(name for name in self.expected if name not in self._records)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all nodes have registered, at most `timeout` seconds; whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._records) >= self.required, timeout)

    def timeout_error(self, timeout: float) -> ReservationTimeoutError:
        """What to raise when the nodes did not come within `timeout` seconds."""
        missing, registered = self.missing(), self.get()
        which = missing or tuple(f"{record.name} is there" for record in registered)
        return ReservationTimeoutError(
            f"{self.required - len(registered)} of {self.required} nodes did not register within {timeout:g} s"
            + (f": {_listed(which)}" if which else ""),
            "Check that the cluster has a free executor for each of them and look at the executors' logs; "
            "raise reservation_timeout when they are only slow.",
            missing,
        )


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
