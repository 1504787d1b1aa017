"""Whole batches, as many as every other node makes (`equal_steps`): the node's side of the agreement.

Rows are taken ahead, and what they suffice for is told to the driver; a batch is handed out when the driver has granted it, which
it mostly has before. Only the rows of the next moments are taken: a feed task ends with its last row, and a node that takes far
more than it uses gets partitions that others wait for. When no more will be granted, the rest of the epoch is taken and counted as
left over, so that feed tasks end. Rows that were taken ahead stay here when an iteration is abandoned.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfos_core.feed.inbox import Inbox, Mark, Piece
from tfos_core.feed.pace import in_advance

__all__ = ("EqualSteps",)

#: What the program uses in so many seconds is taken ahead, at least two batches: many times what the control channel needs for an
#: answer. Half of it is handed out at once, so that grants for more come while the program is busy with that half.
_AHEAD_S = 0.05
_WHOLE_BLOCK = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What one iteration asks for."""

    batch_size: int
    allow_empty: bool
    iteration: int


class EqualSteps:
    """One per hub.

    Args:
        report: tells the driver: an op, an epoch and fields.
        on_left_over: called with the number of rows that are dropped.
    """

    def __init__(self, inbox: Inbox, *, report: Callable[..., None], on_left_over: Callable[[int], None]) -> None:
        self._inbox = inbox
        self._report = report
        self._on_left_over = on_left_over
        # Held for one step: a new iteration first sends an earlier one away, which then lets go.
        self._stepping = threading.Lock()
        self._held: deque[Piece] = deque()
        self._rows = 0
        self._ahead = 2
        self._seq = 0
        self._epoch_rows = 0
        self._made = 0
        self._told = -1
        self._ended = False
        self._granted = 0
        self._final = False
        self._is_out = False

    def on_grant(self, message: Mapping[str, Any]) -> None:
        """The driver's answer; grants only grow."""
        if int(message["seq"]) != self._seq:
            return
        self._granted = max(self._granted, int(message["steps"]))
        self._final = self._final or bool(message["final"])
        self._inbox.wake()

    def opt_out(self) -> None:
        """This node calls `next_batch`, for which nothing is agreed."""
        if not self._is_out:
            self._is_out = True
            self._report("feed.steps", self._seq, out=True)

    def batches(self, batch_size: int, *, all_epochs: bool, allow_empty: bool, ahead: int = 1) -> Iterator[tuple[list[Piece], int]]:
        """One iteration: an epoch, or all of them.

        Yields pieces that have the rows of some batches in all, and how many batches: one at first, then up to `ahead`, but never
        more than were granted.
        """
        iteration = self._inbox.begin_iteration()
        request = _Request(batch_size=batch_size, allow_empty=allow_empty, iteration=iteration)
        most, given, last = 1, 0, 0
        while True:
            with self._stepping:
                step = self._step(request, most)
            if not isinstance(step, Mark):
                since = time.monotonic()
                yield step
                # While these batches were ready, those before them were used.
                used = int(_AHEAD_S * max(1, last) / max(time.monotonic() - since, 1e-6))
                # A program that fills a buffer of its own seems to be faster than it is.
                self._ahead = max(2, min(used, 2 * self._ahead))
                last = step[1]
                given += last
                most = min(2 * most, ahead, in_advance(given, last))
            elif step is not Mark.EPOCH or not all_epochs:
                return

    def _step(self, request: _Request, most: int) -> tuple[list[Piece], int] | Mark:
        while True:
            if self._made < self._granted:
                self._top_up(request)
                steps = min(self._granted - self._made, most, self._ahead // 2)
                self._made += steps
                return self._cut(steps * request.batch_size), steps
            if self._final:
                return self._end_epoch(request)
            if self._wanted(request.batch_size):
                mark = self._take(request, wait=True)
                if mark is None or mark is Mark.NOTHING:
                    self._fill(request)
            else:
                mark = self._inbox.wait_for(self._has_news, request.iteration)
            if mark is not None and mark is not Mark.NOTHING:
                return mark

    def _top_up(self, request: _Request) -> None:
        """Take what is there already, when half of what should be here is used."""
        if self._wanted(request.batch_size) >= self._rows:
            self._fill(request)

    def _fill(self, request: _Request) -> None:
        """Take what is there already of what should be here, and tell: once, because every message costs three processes."""
        while self._wanted(request.batch_size) and self._take(request, wait=False) is None:
            pass
        self._tell(request)

    def _wanted(self, batch_size: int) -> int:
        """How many more rows should be here."""
        if self._ended:
            return 0
        return max(0, self._ahead * batch_size - self._rows)

    def _has_news(self) -> bool:
        return self._made < self._granted or self._final

    def _take(self, request: _Request, *, wait: bool) -> Mark | None:
        """Take more rows of a block, or notice the end of the epoch; a mark when nothing is there, or the iteration is over."""
        wanted = self._wanted(request.batch_size)
        taken = self._inbox.take(wanted, iteration=request.iteration, unless=self._has_news if wait else _at_once)
        if isinstance(taken, Piece):
            self._held.append(taken)
            self._rows += taken.stop - taken.start
            self._epoch_rows += taken.stop - taken.start
        elif taken is Mark.EPOCH:
            self._ended = True
        else:
            return taken
        return None

    def _tell(self, request: _Request) -> None:
        steps = self._made + self._rows // request.batch_size
        if steps == self._told and not self._ended:
            return
        if steps == 0 and not self._ended:
            return
        self._told = steps
        self._report(
            "feed.steps",
            self._seq,
            steps=steps,
            rows=self._epoch_rows,
            batch_size=request.batch_size,
            ended=self._ended,
            allow_empty=request.allow_empty,
        )

    def _cut(self, rows: int) -> list[Piece]:
        pieces = []
        self._rows -= rows
        while rows:
            piece = self._held.popleft()
            size = piece.stop - piece.start
            if size > rows:
                self._held.appendleft(replace(piece, start=piece.start + rows))
                piece, size = replace(piece, stop=piece.start + rows), rows
            pieces.append(piece)
            rows -= size
        return pieces

    def _end_epoch(self, request: _Request) -> Mark:
        """Take what is left of the epoch, because feed tasks wait until their rows were taken."""
        self._held.clear()
        left, self._rows = self._rows, 0
        self._on_left_over(left)
        while not self._ended:
            taken = self._inbox.take(_WHOLE_BLOCK, iteration=request.iteration)
            if isinstance(taken, Piece):
                self._on_left_over(taken.stop - taken.start)
            elif taken is Mark.EPOCH:
                self._ended = True
            elif taken is Mark.FEED or taken is Mark.SUPERSEDED:
                return taken
        self._report("feed.progress", self._seq)
        self._granted, self._final = 0, False
        self._made, self._told, self._epoch_rows, self._ended = 0, -1, 0, False
        self._seq += 1
        return Mark.EPOCH


def _at_once() -> bool:
    """For a look at what is there."""
    return True
