"""Lines of a run in the order of their numbers, whichever way they come. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tfos_core.uplink.journal import NumberedLine

__all__ = ("Sequencer",)

#: Lines that wait for one before them; beyond it they are let go, since the record has them too.
MOST_HELD = 20_000


class Sequencer:
    """Gives out every line once.

    Args:
        position: the first number that is wanted.
    """

    def __init__(self, position: int = 1) -> None:
        self._next = position
        self._held: dict[int, str] = {}

    @property
    def position(self) -> int:
        """The number that comes next."""
        return self._next

    @property
    def has_gap(self) -> bool:
        """Whether lines wait for one that only the record can bring."""
        return bool(self._held)

    def from_live(self, number: int, line: str) -> list[str]:
        """A line of the live connection, which may lack those before it; what can be given out now."""
        if number > self._next:
            if len(self._held) < MOST_HELD:
                self._held[number] = line
            return []
        if number < self._next:
            return []
        self._next += 1
        return [line, *self._follow()]

    def from_record(self, lines: Iterable[NumberedLine]) -> list[str]:
        """Lines of the record, in order and complete: what is missing between them was left out."""
        found: list[str] = []
        for number, line in lines:
            if number < self._next:
                continue
            # Those that came over the connection before the record had them.
            found += [self._held.pop(held) for held in sorted(self._held) if held < number]
            self._held.pop(number, None)
            found.append(line)
            self._next = number + 1
        return found + self._follow()

    def _follow(self) -> list[str]:
        found = []
        while self._next in self._held:
            found.append(self._held.pop(self._next))
            self._next += 1
        return found
