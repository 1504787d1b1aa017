"""The driver's end: numbers every line of the run, writes it into the record, and offers it to the live connection."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfos_core.uplink.folder import RecordFolder
from tfos_core.uplink.journal import CANCEL_FILE, NumberedLine, cancel_reason, encode_part, part_name
from tfos_core.uplink.live import LiveLine

__all__ = ("Uplink", "flush_interval_s")

logger = logging.getLogger(__name__)

STATUS_FILE = "status.json"

#: Between two parts of the record: a hundredth of the age of the run, so that a long run has hundreds of files and not thousands.
_SHORTEST_S, _LONGEST_S, _AGE_PART = 1.0, 60.0, 100.0
#: The same while the live connection brings everything at once.
_SHORTEST_LIVE_S = 10.0
#: Between two looks for a request to end.
_CANCEL_LOOK_S, _CANCEL_LOOK_LIVE_S = 3.0, 15.0
#: While the file system does not answer, output of nodes beyond this is let go; events are kept.
MOST_WAITING_BYTES = 32 << 20
#: These are written at once.
_URGENT = re.compile(r'"event":"(?:driver_started|cluster_ready|node_failed|restarting|result)"|"op":"status"')


def flush_interval_s(age_s: float, *, is_live: bool) -> float:
    """Seconds between two parts of a record, by the age of the run.

    >>> [flush_interval_s(age, is_live=False) for age in (10, 600, 86400)]
    [1.0, 6.0, 60.0]
    """
    return min(_LONGEST_S, max(_SHORTEST_LIVE_S if is_live else _SHORTEST_S, age_s / _AGE_PART))


class Uplink:
    """A `LineSender` for a job in cluster deploy mode; opened before the job and closed after it.

    Args:
        folder: the record; None when it can not be reached, which leaves the live connection.
        live: None when the submitting machine does not listen.
        on_shutdown: gets the reason when somebody asks for the end of the job; from a thread of the uplink.
    """

    def __init__(self, folder: RecordFolder | None, live: LiveLine | None, *, on_shutdown: Callable[[str], None]) -> None:
        self._folder = folder
        self._live = live
        self._on_shutdown = on_shutdown
        self._begun = time.monotonic()
        self._changed = threading.Condition()
        self._number = 0
        self._unwritten: list[NumberedLine] = []
        self._bytes = 0
        self._dropped = 0
        self._status: Mapping[str, Any] | None = None
        self._urgent = False
        self._ending = False
        self._cancelled = False
        self._failing = False
        self._thread = threading.Thread(target=self._write, name="tfos-record", daemon=True)
        if folder is not None:
            self._thread.start()

    def send(self, line: str) -> None:
        """Take one line; never waits and never raises."""
        self._take(line, is_optional=line.startswith(('{"op":"output"', '{"op":"file"')))

    def status(self, status: Mapping[str, Any]) -> None:
        """The status record is now this."""
        with self._changed:
            self._status = dict(status)
        self._take(json.dumps({"op": "status", "status": status}, separators=(",", ":")), is_optional=False)

    def close(self, *, timeout: float = 20.0) -> None:
        """Write and send what waits, for at most `timeout` seconds; may be called twice."""
        until = time.monotonic() + timeout
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._folder is not None:
            self._thread.join(timeout)
            if self._unwritten:
                logger.warning("%d lines of the run could not be written to %s", len(self._unwritten), self._folder.url)
        if self._live is not None:
            self._live.close(timeout=max(1.0, min(5.0, until - time.monotonic())))

    def _take(self, line: str, *, is_optional: bool) -> None:
        with self._changed:
            if is_optional and self._bytes > MOST_WAITING_BYTES:
                self._dropped += 1
                return
            self._number += 1
            if self._folder is not None:
                self._unwritten.append((self._number, line))
                self._bytes += len(line)
            if self._live is not None:
                self._live.offer(self._number, line)
            if _URGENT.search(line, 0, 200):
                self._urgent = True
                self._changed.notify_all()

    # -- the thread that writes the record --------------------------------------------------------------------------------

    def _write(self) -> None:
        written = looked = time.monotonic()
        while True:
            is_live = self._live is not None and self._live.is_connected
            interval = flush_interval_s(time.monotonic() - self._begun, is_live=is_live)
            look = _CANCEL_LOOK_LIVE_S if is_live else _CANCEL_LOOK_S
            now = time.monotonic()
            wait = min(written + interval, looked + look) - now
            with self._changed:
                self._changed.wait_for(lambda: self._ending or (self._urgent and not self._failing), max(0.0, wait))
                ending, urgent = self._ending, self._urgent
            now = time.monotonic()
            if ending or urgent or now >= written + interval:
                self._flush()
                written = now
            if ending:
                return
            if now >= looked + look:
                self._look_for_cancel()
                looked = now

    def _flush(self) -> None:
        with self._changed:
            lines, status = list(self._unwritten), self._status
            self._urgent = False
        if self._folder is None:
            return
        try:
            if lines:
                self._folder.put(part_name(lines[0][0]), encode_part(lines))
                self._forget(len(lines))
            if status is not None:
                self._folder.put(STATUS_FILE, json.dumps(status, indent=1).encode())
                with self._changed:
                    self._status = None if self._status is status else self._status
            self._failing = False
        except OSError as exc:
            if not self._failing:
                logger.warning("the record of the run can not be written, and is tried again: %s", exc)
            self._failing = True

    def _forget(self, count: int) -> None:
        with self._changed:
            self._bytes -= sum(len(line) for _, line in self._unwritten[:count])
            del self._unwritten[:count]
            if self._dropped and self._bytes <= MOST_WAITING_BYTES:
                logger.warning("%d lines of output are in neither the record nor the logs", self._dropped)
                self._dropped = 0

    def _look_for_cancel(self) -> None:
        if self._cancelled or self._folder is None:
            return
        try:
            data = self._folder.get(CANCEL_FILE)
        except OSError:
            return  # writing has said it
        if data is not None:
            self._cancelled = True
            self._on_shutdown(cancel_reason(data) or "cancelled")
