"""How many batches tf.data is given at once: a stack of few at first, then of ever more.

What tf.data asks of Python costs some tenths of a millisecond each time, whatever its size; so stacks should be large. But rows in
a stack count as consumed: an iteration that is abandoned loses them, and a feed task ends with its last row, so that a node that
takes far more than it uses gets partitions which others wait for. One stack is in use while the next one is ready.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ("MOST_FED", "MOST_REPLAYED", "Pace", "in_advance")

#: Batches of a stack at most: of rows that are fed, and of an epoch from the cache, of which nobody waits for anything.
MOST_FED = 16
MOST_REPLAYED = 32
#: So many batches of an iteration come one by one.
_ONE_BY_ONE = 16
#: Seconds for which a stack lasts at most.
_FED_S = 0.05
_REPLAYED_S = 0.5
#: The second and third stack of an epoch from the cache are as large as the epoch before suggests: of its own only the first step
#: is known then, which is a slow one in many programs.
_SUGGESTED_STACKS = 2


def in_advance(given: int, last: int) -> int:
    """How many batches a stack may have, so that with the `last` one, then in use, it has no more than were `given` before both."""
    return max(1, given - 2 * last)


@dataclass(slots=True)
class Pace:
    """Of one iteration.

    Args:
        suggested: what the iteration before found right for an epoch from the cache.
    """

    suggested: int = 1
    #: Of the next stack.
    batches: int = field(default=1, init=False)
    #: What to suggest to the next iteration when this one comes to its end.
    for_next_epoch: int = field(default=1, init=False)
    _given: int = field(default=0, init=False)
    _last: int = field(default=0, init=False)
    _stacks: int = field(default=0, init=False)
    _used_s: float = field(default=0.0, init=False)

    def handed_out(self, batches: int, took_s: float, *, most: int, is_replay: bool) -> None:
        """A stack was handed out, and the next one is wanted `took_s` later: meanwhile, the one before it was used.

        Args:
            most: batches of a stack that its rows allow, 1 or more.
        """
        used, self._last = self._last, batches
        self._given += batches
        self._stacks += 1
        self._used_s += took_s
        lasts_s = _REPLAYED_S if is_replay else _FED_S
        self.for_next_epoch = _in_time(most, self._used_s / max(1, self._given - batches), lasts_s)
        if is_replay and self._stacks <= _SUGGESTED_STACKS:
            self.batches = min(self.suggested, most)
        elif self._given >= _ONE_BY_ONE:
            most = most if is_replay else min(most, in_advance(self._given, batches))
            self.batches = _in_time(min(2 * self.batches, most), took_s / max(1, used), lasts_s)


def _in_time(batches: int, step_s: float, lasts_s: float) -> int:
    """As many batches, but not more than are used in so many seconds."""
    return max(1, min(batches, int(lasts_s / max(step_s, 1e-6))))
