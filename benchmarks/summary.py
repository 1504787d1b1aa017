"""Results of single benchmarks into one summary, and the summary as a table for a terminal and for the documentation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from goals import GOALS, LIMITS, Goal, Limit

__all__ = ("merge", "pair_ratios", "render_markdown", "render_text", "summarise")

_LIFETIMES = ("at", "machine", "settings")


def merge(documents: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each case the newest measurements, as `benchmark/case`: a benchmark may have been run case by case."""
    newest: dict[str, dict[str, Any]] = {}
    for document in sorted(documents, key=lambda each: str(each["at"])):
        cases: dict[str, list[Any]] = {}
        for measured in document["measurements"]:
            cases.setdefault(f"{document['benchmark']}/{measured['case']}", []).append(measured)
        for key, measurements in cases.items():
            newest[key] = {name: document[name] for name in _LIFETIMES} | {"measurements": measurements}
    return dict(sorted(newest.items()))


def pair_ratios(ours: Sequence[float], base: Sequence[float], *, more_is_better: bool) -> list[float]:
    """How many times as good each round of ours is as its partner."""
    pairs = list(zip(ours, base, strict=False))
    return [mine / other if more_is_better else other / mine for mine, other in pairs if mine > 0 and other > 0]


def summarise(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every goal and limit that something was measured for, with what was found; and where."""
    goals = list(_each(GOALS, results))
    ratios = [found for goal in goals if (found := _compare(goal, results)) is not None]
    limits = [found for limit in LIMITS if (found := _check(limit, results)) is not None]
    machines = {key: entry["machine"] for key, entry in results.items()}
    loads: dict[str, float] = {}
    for key, machine in machines.items():
        benchmark = key.partition("/")[0]
        loads[benchmark] = max(loads.get(benchmark, 0.0), machine["load_1min"])
    return {
        "machines": _alike(machines),
        "loads": loads,
        "ratios": ratios,
        "limits": limits,
        "bounds": list(_bounds(results, ratios)),
        "others": list(_others(results, goals)),
    }


def _each(goals: Iterable[Goal], results: Mapping[str, Any]) -> Iterator[Goal]:
    """Goals for every case, once for each."""
    for goal in goals:
        cases = [key.partition("/")[2] for key in results if key.startswith(f"{goal.benchmark}/")]
        yield from (replace(goal, case=case) for case in cases) if goal.case == "*" else (goal,)


def _compare(goal: Goal, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    ours, base = (_find(results, goal.benchmark, goal.case, side, goal.unit) for side in (goal.side, goal.base))
    if ours is None or base is None:
        return None
    ratios = pair_ratios(ours["rounds"], base["rounds"], more_is_better=goal.unit.endswith("/s"))
    if not ratios:
        return None
    return {
        "benchmark": goal.benchmark,
        "case": goal.case,
        "side": goal.side,
        "base": goal.base,
        "unit": goal.unit,
        "median": _rounded(ours["median"]),
        "base_median": _rounded(base["median"]),
        "ratio": _rounded(statistics.median(ratios)),
        "least": _rounded(min(ratios)),
        "most": _rounded(max(ratios)),
        "pairs": len(ratios),
        "goal": goal.at_least,
    }


def _bounds(results: Mapping[str, Mapping[str, Any]], ratios: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The best ratio to Spark alone that CPU time leaves a feed through a socket: what Spark takes, over that and what is added.

    Of an RDD, Spark alone unpickles in its Python workers what a feed hands on as it is, so their time is not counted as needed;
    but the bytes come through such a worker, which reads them: half of what a socket takes.
    """
    for ratio in ratios:
        way = ratio["side"].partition("ours, ")[2]
        if ratio["benchmark"] != "feed" or ratio["base"] != f"Spark alone ({way})":
            continue
        alone, workers = (_cost(results, "feed", ratio["case"], ratio["base"], part) for part in ("", ", workers"))
        bytes_ = _cost(results, "bounds", ratio["case"], "socket")
        values = _least(results, ratio["case"], _VALUES[way])
        if alone is None or workers is None or bytes_ is None or values is None:
            continue
        is_rdd = not ratio["case"].startswith("DataFrame")
        if way != "next_batch":
            # What tf.data is given has to be made first: arrays out of pickled batches, or objects for tensors of strings.
            first = ("gathered", "unpickled") if is_rdd else ("Python values",) if "binary" in ratio["case"] else ()
            values += _least(results, ratio["case"], first) or 0.0
        needed = alone - workers + bytes_ / 2 if is_rdd else alone
        yield {
            "case": ratio["case"],
            "way": way,
            "alone": _rounded(alone),
            "needed": _rounded(needed),
            "socket": _rounded(bytes_),
            "values": _rounded(values),
            "best": _rounded(alone / (needed + bytes_ + values)),
            "ratio": ratio["ratio"],
        }


#: How the values may be made, of which the cheapest counts.
_VALUES = {
    "next_batch": ("Python values", "unpickled"),
    "as_dataset": ("tf.data",),
    "as_dataset in tf.function": ("tf.data in tf.function",),
}


def _least(results: Mapping[str, Mapping[str, Any]], case: str, sides: Iterable[str]) -> float | None:
    costs = [cost for side in sides if (cost := _cost(results, "bounds", case, side)) is not None]
    return min(costs, default=None)


def _cost(results: Mapping[str, Mapping[str, Any]], benchmark: str, case: str, side: str, part: str = "") -> float | None:
    found = _find(results, benchmark, case, side, f"CPU s/M rows{part}")
    return None if found is None else float(found["median"])


def _check(limit: Limit, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    found = _find(results, limit.benchmark, limit.case, limit.side, limit.unit)
    if found is None:
        return None
    return {
        "benchmark": limit.benchmark,
        "case": limit.case,
        "side": limit.side,
        "unit": limit.unit,
        "median": _rounded(found["median"]),
        "least": _rounded(found["least"]),
        "most": _rounded(found["most"]),
        "rounds": len(found["rounds"]),
        "at_most": limit.at_most,
    }


def _others(results: Mapping[str, Mapping[str, Any]], goals: Iterable[Goal]) -> Iterator[dict[str, Any]]:
    """What neither a goal nor a limit speaks of: costs, and cases of one side only; not the parts of a cost (`CPU, JVMs`)."""
    told = {(each.benchmark, each.case, side, each.unit) for each in goals for side in (each.side, each.base)}
    told |= {(each.benchmark, each.case, each.side, each.unit) for each in LIMITS}
    for key, entry in results.items():
        benchmark, _, case = key.partition("/")
        for measured in entry["measurements"]:
            if (benchmark, case, measured["side"], measured["unit"]) in told or ", " in measured["unit"]:
                continue
            yield {
                "benchmark": benchmark,
                "case": case,
                "side": measured["side"],
                "unit": measured["unit"],
                **{name: _rounded(measured[name]) for name in ("median", "least", "most")},
                "rounds": len(measured["rounds"]),
            }


def _find(results: Mapping[str, Mapping[str, Any]], benchmark: str, case: str, side: str, unit: str) -> Mapping[str, Any] | None:
    entry = results.get(f"{benchmark}/{case}", {"measurements": ()})
    return next((each for each in entry["measurements"] if (each["side"], each["unit"]) == (side, unit)), None)


def _alike(machines: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The machines, each once; how busy one was at the start is not what makes it another."""
    found: list[dict[str, Any]] = []
    for machine in machines.values():
        plain = {name: value for name, value in machine.items() if name != "load_1min"}
        if plain not in found:
            found.append(plain)
    return found


def _rounded(value: float) -> float:
    """Three digits are what a median of a few rounds is good for."""
    return float(f"{value:.3g}")


def verdict(entry: Mapping[str, Any]) -> str:
    """Whether a ratio or a number comes up to what is asked."""
    if "at_most" in entry:
        return "yes" if entry["median"] <= entry["at_most"] else "NO"
    if entry["goal"] is None:
        return ""
    return "yes" if entry["ratio"] >= entry["goal"] else "NO"


def render_text(summary: Mapping[str, Any]) -> str:
    """For a terminal."""
    lines = [_machine_text(machine) for machine in summary["machines"]]
    lines.append("load at the end: " + ", ".join(f"{benchmark} {load:.1f}" for benchmark, load in summary["loads"].items()))
    lines.append(f"\n{'':64}{'ratio':>9}{'least':>9}{'most':>9} {'pairs':>5} {'goal':>6}  met")
    for entry in summary["ratios"]:
        goal = "" if entry["goal"] is None else f"{entry['goal']:g}"
        what = f"{entry['benchmark']}: {entry['case']}"
        lines.append(what)
        against = f"  {entry['side']} against {entry['base']} ({entry['unit']})"
        numbers = "".join(f"{entry[name]:>9.3g}" for name in ("ratio", "least", "most"))
        lines.append(f"{against:64}{numbers} {entry['pairs']:>5} {goal:>6}  {verdict(entry)}")
    lines.append(f"\n{'':64}{'median':>9}{'least':>9}{'most':>9} {'':>5} {'limit':>6}  met")
    for entry in (*summary["limits"], *summary["others"]):
        what = f"{entry['benchmark']}: {entry['case']}, {entry['side']} ({entry['unit']})"
        numbers = "".join(f"{_shown(entry[name]):>9}" for name in ("median", "least", "most"))
        limit = f"{entry['at_most']:g}" if "at_most" in entry else ""
        lines.append(f"{what:64}{numbers} {entry['rounds']:>5} {limit:>6}  {verdict(entry) if limit else ''}".rstrip())
    return "\n".join(lines)


def render_markdown(summary: Mapping[str, Any]) -> str:
    """The tables of docs/performance.md."""
    parts = ["\n".join(f"Measured on {_machine_text(machine)}." for machine in summary["machines"])]
    for benchmark in dict.fromkeys(entry["benchmark"] for entry in (*summary["ratios"], *summary["limits"], *summary["others"])):
        parts.append(f"### {_TITLES.get(benchmark, benchmark)}")
        parts.append(f"Load of the machine at the end, the benchmark's own included: {summary['loads'][benchmark]:.1f}.")
        ratios = [entry for entry in summary["ratios"] if entry["benchmark"] == benchmark]
        if ratios:
            parts.append("\n".join(_ratio_rows(ratios)))
        if benchmark == "feed" and summary["bounds"]:
            parts.append(_ABOUT_BOUNDS)
            parts.append("\n".join(_bound_rows(summary["bounds"])))
        limits = [entry for entry in (*summary["limits"], *summary["others"]) if entry["benchmark"] == benchmark]
        if limits:
            parts.append("\n".join(_number_rows(limits)))
    return "\n\n".join(parts)


_TITLES = {
    "feed": "Feed",
    "equal_steps": "Equal steps",
    "end_to_end": "Training",
    "cache": "Epochs from the cache of the nodes",
    "direct_reading": "Nodes that read files",
    "bounds": "What values of rows cost without Spark and without a feed",
    "inference": "Inference with a SavedModel",
    "cluster_inference": "Inference by the nodes",
    "tfrecords": "TFRecords",
    "lifecycle": "Start and shutdown",
    "control": "Control channel",
    "launcher": "Command line",
}


def _ratio_rows(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| case | side | median | against | median | times as good | least | most | goal |"
    yield "|---|---|--:|---|--:|--:|--:|--:|--:|"
    for entry in entries:
        goal = "" if entry["goal"] is None else f"{entry['goal']:g}"
        missed = " (missed)" if verdict(entry) == "NO" else ""
        yield (
            f"| {entry['case']} | {entry['side']} | {_shown(entry['median'])} {entry['unit']} | {entry['base']} "
            f"| {_shown(entry['base_median'])} {entry['unit']} | {_shown(entry['ratio'])} | {_shown(entry['least'])} "
            f"| {_shown(entry['most'])} | {goal}{missed} |"
        )


_ABOUT_BOUNDS = (
    "What a feed through a socket can come to when all cores are busy, in CPU seconds for a million rows: `needed` is what Spark "
    "alone takes (of an RDD, without unpickling in its Python workers, which the nodes do); on top of it come the bytes through a "
    "socket, and the values for the program, for `as_dataset` with what TensorFlow takes for handing them out."
)


def _bound_rows(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| case | way | Spark alone | needed | socket | values | best ratio | measured |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for entry in entries:
        numbers = " | ".join(_shown(entry[name]) for name in ("alone", "needed", "socket", "values", "best", "ratio"))
        yield f"| {entry['case']} | {entry['way']} | {numbers} |"


def _number_rows(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| case | side | unit | median | least | most | at most |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for entry in entries:
        limit = f"{entry['at_most']:g}" if "at_most" in entry else ""
        missed = " (missed)" if limit and verdict(entry) == "NO" else ""
        numbers = " | ".join(_shown(entry[name]) for name in ("median", "least", "most"))
        yield f"| {entry['case']} | {entry['side']} | {entry['unit']} | {numbers} | {limit}{missed} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _machine_text(machine: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, "
        f"Python {machine['python']}, {packages}"
    )
