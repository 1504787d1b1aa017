"""Whether something grows: a straight line through samples, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ("Growth", "Limit", "fit", "fit_all", "markdown_table", "print_growth")

#: A line through fewer samples says nothing about memory.
FEWEST_FOR_MEMORY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What of a quantity counts as growth.

    Attributes:
        unit: shown with the numbers.
        per_cycle: more than this in each cycle; None shows the quantity and judges nothing.
        in_all: and more than this, and than samples lie from the line, from the first judged sample to the last, along the line.
        is_memory: noisy, so that it takes `FEWEST_FOR_MEMORY` samples to judge it.
    """

    unit: str = ""
    per_cycle: float | None = 0.0
    in_all: float = 1.5
    is_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One quantity: its samples after the warm-up, the slope of the line through them, and the verdict."""

    name: str
    unit: str
    first: float
    last: float
    least: float
    most: float
    per_cycle: float
    samples: int
    verdict: str

    @property
    def grows(self) -> bool:
        """Whether it is judged to grow."""
        return self.verdict == "GROWS"


def fit(name: str, cycles: Sequence[float], values: Sequence[float], limit: Limit) -> Growth:
    """The median of the slopes of all pairs (Theil and Sen), which single odd samples do not move."""
    pairs = [(b - a, y - x) for (a, x), (b, y) in combinations(zip(cycles, values, strict=True), 2) if b != a]
    slope = statistics.median(rise / run for run, rise in pairs) if pairs else 0.0
    rise = slope * (cycles[-1] - cycles[0]) if cycles else 0.0
    if limit.per_cycle is None:
        verdict = "shown only"
    elif limit.is_memory and len(values) < FEWEST_FOR_MEMORY:
        verdict = "too few samples"
    else:
        grows = slope > limit.per_cycle and rise > max(limit.in_all, _stray(cycles, values, slope))
        verdict = "GROWS" if grows else "flat"
    return Growth(
        name=name,
        unit=limit.unit,
        first=values[0],
        last=values[-1],
        least=min(values),
        most=max(values),
        per_cycle=slope,
        samples=len(values),
        verdict=verdict,
    )


def _stray(cycles: Sequence[float], values: Sequence[float], slope: float) -> float:
    """How far samples lie from the line, from one side to the other, without the oddest one on each: a pool of threads breathes."""
    residuals = sorted(value - slope * cycle for cycle, value in zip(cycles, values, strict=True))
    return residuals[-2] - residuals[1] if len(residuals) > FEWEST_FOR_MEMORY else 0.0


def fit_all(samples: Sequence[tuple[int, Mapping[str, float]]], limits: Mapping[str, Limit], warm_up: float) -> list[Growth]:
    """Every quantity that all judged samples have, in the order of `limits`; the first `warm_up` of the cycles is left out."""
    last = samples[-1][0]
    judged = [sample for sample in samples if sample[0] > last * warm_up]
    cycles = [cycle for cycle, _ in judged]
    return [
        fit(name, cycles, [values[name] for _, values in judged], limit)
        for name, limit in limits.items()
        if all(name in values for _, values in judged)
    ]


def print_growth(title: str, found: Sequence[Growth]) -> None:
    """A line for each quantity."""
    print(f"\n{title}")
    print(f"  {'':44}{'first':>12}{'last':>12}{'min':>12}{'max':>12}{'per cycle':>12}  verdict")
    for entry in found:
        numbers = "".join(f"{_number(value):>12}" for value in (entry.first, entry.last, entry.least, entry.most))
        print(f"  {_label(entry):44}{numbers}{entry.per_cycle:>+12.3f}  {entry.verdict}")


def markdown_table(found: Sequence[Growth], cycle: str) -> str:
    """The same as a table of Markdown."""
    lines = [f"| what | first | last | min | max | per {cycle} | verdict |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    lines += [
        f"| {_label(entry)} | {_number(entry.first)} | {_number(entry.last)} | {_number(entry.least)} | {_number(entry.most)} "
        f"| {entry.per_cycle:+.3f} | {entry.verdict} |"
        for entry in found
    ]
    return "\n".join(lines)


def _label(entry: Growth) -> str:
    return f"{entry.name} ({entry.unit})" if entry.unit else entry.name


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else f"{value:,.2f}"
