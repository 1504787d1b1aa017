"""What becomes of measurements: the newest ones count, ratios are those of pairs, and pages show what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from summary import merge, pair_ratios, render_markdown, render_text, summarise

DOCS = Path(__file__).parents[3] / "docs"
CASE = "tuples of 10 floats"
MACHINE = {"cpu": "A CPU", "cores": 2, "memory_gib": 4.0, "system": "Linux", "python": "3.11", "packages": {"numpy": "2"}}


def document(at: str, benchmark: str, *measurements: dict[str, Any], load: float = 0.1) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "at": at,
        "machine": MACHINE | {"load_1min": load},
        "settings": {},
        "measurements": measurements,
    }


def measured(side: str, rounds: list[float], *, case: str = CASE, unit: str = "rows/s") -> dict[str, Any]:
    median = sorted(rounds)[len(rounds) // 2]
    return {
        "case": case, "side": side, "unit": unit, "rounds": rounds, "median": median, "least": min(rounds), "most": max(rounds)
    }  # fmt: skip


def feed(at: str, ours: list[float], alone: list[float]) -> dict[str, Any]:
    sides = measured("ours, next_batch", ours), measured("Spark alone (next_batch)", alone)
    return document(at, "feed", *sides, measured("ours, next_batch", [3.0], unit="CPU s/M rows"), load=len(at))


def test_the_newest_measurements_of_each_case_count() -> None:
    other = document("2", "feed", measured("ours, next_batch", [1.0], case="strings of 100 characters"))
    found = merge([feed("3", [9.0], [1.0]), feed("1", [5.0], [1.0]), other])
    assert {key: entry["measurements"][0]["median"] for key, entry in found.items()} == {
        "feed/strings of 100 characters": 1.0, f"feed/{CASE}": 9.0,
    }  # fmt: skip


def test_a_ratio_is_that_of_each_pair_and_more_is_better_only_for_rates() -> None:
    assert pair_ratios([10, 30], [5, 10], more_is_better=True) == [2, 3]
    assert pair_ratios([5, 10], [10, 30], more_is_better=False) == [2, 3]


def test_a_summary_has_the_median_the_least_and_the_most_of_all_pairs() -> None:
    summary = summarise(merge([feed("1", [100, 300, 100, 90, 100], [100, 100, 200, 100, 100])]))
    (ratio,) = summary["ratios"]
    assert (ratio["ratio"], ratio["least"], ratio["most"], ratio["pairs"], ratio["goal"]) == (1.0, 0.5, 3.0, 5, 0.9)
    assert [entry["unit"] for entry in summary["others"]] == ["CPU s/M rows"]


def test_what_misses_its_goal_or_its_limit_is_told_in_both_forms() -> None:
    slow = feed("1", [50], [100])
    greedy = document("1", "launcher", measured("ours", [0.4], case="tfos --help", unit="CPU s"))
    summary = summarise(merge([slow, greedy]))
    assert len(summary["machines"]) == 1, "how busy a machine is does not make it another one"
    assert [line.split()[-1] for line in render_text(summary).splitlines() if "0.9" in line or "0.3 " in line] == ["NO", "NO"]
    page = render_markdown(summary)
    assert page.count("(missed)") == 2
    assert "A CPU, 2 cores, 4.0 GiB" in page
    assert page.count("Load of the machine at the end") == 2


@pytest.mark.parametrize(
    ("case", "needed", "best"), [(CASE, 6.5, 1.0), ("DataFrame, 10 float columns", 8.0, 0.842)], ids=["RDD", "DataFrame"]
)
def test_the_bound_of_a_ratio_is_what_spark_the_socket_and_the_values_cost(case: str, needed: float, best: float) -> None:
    cpu = "CPU s/M rows"
    base = "Spark alone (next_batch)"
    fed = document(
        "1",
        "feed",
        measured("ours, next_batch", [70.0], case=case),
        measured(base, [100.0], case=case),
        measured(base, [8.0], case=case, unit=cpu),
        measured(base, [2.0], case=case, unit=f"{cpu}, workers"),
    )
    bounds = document(
        "1", "bounds", measured("socket", [1.0], case=case, unit=cpu), measured("Python values", [0.5], case=case, unit=cpu)
    )
    (found,) = summarise(merge([fed, bounds]))["bounds"]
    assert (found["alone"], found["needed"], found["best"], found["ratio"]) == (8.0, needed, best, 0.7)
    assert f"| {case} | next_batch | 8 | {needed:g} | 1 | 0.5 | {best:.3g} | 0.7 |" in render_markdown(
        summarise(merge([fed, bounds]))
    )
    assert summarise(merge([fed]))["bounds"] == []


@pytest.mark.parametrize(
    ("case", "side", "values"),
    [
        (CASE, "gathered", 2.5),
        ("DataFrame, binary of 3 KB", "Python values", 2.5),
        ("DataFrame, 10 float columns", "Python values", 2.0),
    ],
)
def test_the_bound_of_a_dataset_counts_what_has_to_be_made_before(case: str, side: str, values: float) -> None:
    cpu = "CPU s/M rows"
    base = "Spark alone (as_dataset)"
    alone = (measured(base, [8.0], case=case, unit=cpu), measured(base, [2.0], case=case, unit=f"{cpu}, workers"))
    fed = document("1", "feed", measured("ours, as_dataset", [70.0], case=case), measured(base, [100.0], case=case), *alone)
    costs = {"socket": 1.0, "tf.data": 2.0, side: 0.5}
    bounds = document("1", "bounds", *(measured(name, [cost], case=case, unit=cpu) for name, cost in costs.items()))
    (found,) = summarise(merge([fed, bounds]))["bounds"]
    assert found["values"] == values


def test_the_page_quotes_the_committed_figures() -> None:
    block = render_markdown(json.loads((DOCS / "performance.json").read_text(encoding="utf-8")))
    assert block in (DOCS / "performance.md").read_text(encoding="utf-8")


def test_the_picture_has_a_bar_for_every_ratio(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from plot import bars, draw

    summary = summarise(merge([feed("1", [50, 60], [100, 100])]))
    assert bars(summary) == [
        ("feed: tuples of 10 floats\nours, next_batch / Spark alone (next_batch) (rows/s)", 0.55, 0.5, 0.6, 0.9)
    ]
    draw(summary, tmp_path / "bars.svg")
    assert "<svg" in (tmp_path / "bars.svg").read_text(encoding="utf-8")
