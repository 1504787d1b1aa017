"""When the soak says that something grows."""

from __future__ import annotations

import pytest
from growth import Limit, fit, fit_all, markdown_table

CYCLES = [float(cycle) for cycle in range(50, 201, 10)]


def noisy(cycle: float, slope: float) -> float:
    return 100 + slope * cycle + (int(cycle) * 7) % 5


@pytest.mark.parametrize(("slope", "verdict"), [(0.0, "flat"), (-1.0, "flat"), (0.1, "GROWS"), (1.0, "GROWS")])
def test_a_line_through_noise(slope: float, verdict: str) -> None:
    found = fit("threads", CYCLES, [noisy(cycle, slope) for cycle in CYCLES], Limit(in_all=5))
    assert found.verdict == verdict
    assert found.per_cycle == pytest.approx(slope, abs=0.05)


def test_what_goes_up_and_down_by_more_than_the_line_rises_is_not_growth() -> None:
    breathing = [130 + (3 if number % 2 else -3) + 0.026 * cycle for number, cycle in enumerate(CYCLES)]
    assert fit("threads", CYCLES, breathing, Limit(in_all=3.5)).verdict == "flat"
    assert fit("threads", CYCLES, [value + 0.1 * cycle for value, cycle in zip(breathing, CYCLES, strict=True)], Limit()).grows


def test_one_odd_sample_is_not_growth() -> None:
    values = [10.0] * (len(CYCLES) - 1) + [500.0]
    assert fit("files", CYCLES, values, Limit()).verdict == "flat"


def test_one_thing_more_at_the_end_of_many_cycles_is_not_judged_to_grow_and_two_are() -> None:
    one, two = ([10 + n * (cycle - 50) / 150 for cycle in CYCLES] for n in (1, 2))
    assert fit("descriptors", CYCLES, one, Limit()).verdict == "flat"
    assert fit("descriptors", CYCLES, two, Limit()).grows


def test_memory_needs_more_samples_and_some_quantities_are_only_shown() -> None:
    memory = Limit(per_cycle=16, in_all=1024, is_memory=True)
    assert fit("memory", CYCLES[:5], [1e6 * cycle for cycle in CYCLES[:5]], memory).verdict == "too few samples"
    assert fit("memory", CYCLES, [1e6 * cycle for cycle in CYCLES], memory).grows
    assert fit("memory", CYCLES, [1e5 + 8 * cycle for cycle in CYCLES], memory).verdict == "flat"
    assert fit("seconds", CYCLES, CYCLES, Limit(per_cycle=None)).verdict == "shown only"


def test_the_warm_up_is_left_out_and_so_is_what_was_not_always_there() -> None:
    samples = [(cycle, {"a": 1.0 if cycle > 20 else 99.0} | ({"b": 1.0} if cycle > 50 else {})) for cycle in range(10, 101, 10)]
    (found,) = fit_all(samples, {"a": Limit(), "b": Limit(), "c": Limit()}, 0.2)
    assert (found.name, found.samples, found.first, found.verdict) == ("a", 8, 1.0, "flat")
    assert markdown_table([found], "cycle").splitlines()[-1] == "| a | 1 | 1 | 1 | 1 | +0.000 | flat |"
