"""The ratios of a summary as one picture (SVG)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ("bars", "draw")


def bars(summary: Mapping[str, Any]) -> list[tuple[str, float, float, float, float | None]]:
    """One bar for each ratio: its label, the median, the least, the most, and the goal."""
    return [
        (
            f"{entry['benchmark']}: {entry['case']}\n{entry['side']} / {entry['base']} ({entry['unit']})",
            entry["ratio"],
            entry["least"],
            entry["most"],
            entry["goal"],
        )
        for entry in summary["ratios"]
    ]


def draw(summary: Mapping[str, Any], path: Path) -> None:
    """Write the picture: bars on a logarithmic axis, lines from the least to the most of the pairs, marks at goals."""
    import matplotlib as mpl

    mpl.use("svg")
    # Without them the file differs with every run although nothing else does.
    mpl.rcParams["svg.hashsalt"] = "tfos"
    from matplotlib import pyplot

    found = bars(summary)[::-1]
    figure, axes = pyplot.subplots(figsize=(11, 1.2 + 0.34 * len(found)))
    places = range(len(found))
    medians = [median for _, median, _, _, _ in found]
    errors = [
        [median - least for _, median, least, _, _ in found],
        [most - median for _, median, _, most, _ in found],
    ]
    axes.barh(places, medians, xerr=errors, height=0.6, color="#4c78a8", ecolor="#333333", capsize=2)
    goals = [(goal, place) for place, (_, _, _, _, goal) in zip(places, found, strict=True) if goal is not None]
    if goals:
        axes.scatter(*zip(*goals, strict=True), marker="|", s=160, color="#e45756", zorder=3, label="goal")
        axes.legend(loc="lower right")
    axes.axvline(1.0, color="#999999", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(places), [label for label, *_ in found], fontsize=6)
    axes.set_xlabel("times as good (median of pairs; lines from the least to the most)")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
