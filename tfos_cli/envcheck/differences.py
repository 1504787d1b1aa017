"""The odd one out: in what a machine differs from most of the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ("SKEW_S", "Difference", "aspects_of", "differences", "labels_of")

#: Clocks that are further apart are worth a word, in seconds: logs do not line up, and Kerberos gives up at 300.
SKEW_S = 2.0
#: Packages whose absence is worth a word; others are optional, or come with Spark.
_EXPECTED = ("tf_keras", "keras", "numpy", "pandas", "pyarrow", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`machine` has `has` where `count` of the `others` have `majority`."""

    machine: str
    aspect: str
    has: str
    majority: str
    count: int
    others: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in ("machine", "aspect", "has", "majority", "count", "others")}


def labels_of(executors: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What to call each executor: by its host where that is enough, else by what Spark calls it too."""
    hosts = Counter(facts["host"] for facts in executors)
    labels = []
    for facts in executors:
        name = facts["executor"] or f"task {facts['index']}"
        labels.append(facts["host"] if hosts[facts["host"]] == 1 else f"{facts['host']} ({name})")
    return tuple(labels)


def differences(machines: Mapping[str, Mapping[str, str]], reference: Mapping[str, str] | None = None) -> tuple[Difference, ...]:
    """Where machines differ from the majority, those that differ most first.

    Args:
        machines: name -> aspect -> value.
        reference: the driver's values, which count like one more machine's and decide when votes are equal.
    """
    reference = reference or {}
    found: list[Difference] = []
    tied: list[str] = []
    for aspect in dict.fromkeys(aspect for values in machines.values() for aspect in values):
        votes = _votes(machines, reference, aspect)
        ranks = sorted((_rank(votes, reference, aspect, value) for value in votes), reverse=True)
        if len(ranks) > 1 and ranks[0] == ranks[1]:
            tied.append(aspect)
        else:
            majority = max(votes, key=lambda value: _rank(votes, reference, aspect, value))
            found += _odd_ones(machines, aspect, votes, majority)
    # As many say the one as the other: whoever is odd in other things is more likely to be so here.
    oddity = Counter(difference.machine for difference in found)
    for aspect in tied:
        votes = _votes(machines, reference, aspect)
        majority = min(votes, key=lambda value: _oddity(machines, oddity, aspect, value))
        found += _odd_ones(machines, aspect, votes, majority)
    most = Counter(difference.machine for difference in found)
    order = list(machines)
    return tuple(sorted(found, key=lambda difference: (-most[difference.machine], order.index(difference.machine))))


def _votes(machines: Mapping[str, Mapping[str, str]], reference: Mapping[str, str], aspect: str) -> Counter[str]:
    votes = Counter(values[aspect] for values in machines.values() if aspect in values)
    if aspect in reference:
        votes[reference[aspect]] += 1
    return votes


def _rank(votes: Counter[str], reference: Mapping[str, str], aspect: str, value: str) -> tuple[int, bool, bool]:
    return votes[value], value == reference.get(aspect), value.startswith("ok")


def _oddity(machines: Mapping[str, Mapping[str, str]], oddity: Counter[str], aspect: str, value: str) -> int:
    return sum(oddity[name] for name, values in machines.items() if values.get(aspect) == value)


def _odd_ones(machines: Mapping[str, Mapping[str, str]], aspect: str, votes: Counter[str], majority: str) -> Iterator[Difference]:
    count, others = votes[majority], votes.total() - 1
    for name, values in machines.items():
        value = values.get(aspect)
        if value is not None and value != majority:
            yield Difference(machine=name, aspect=aspect, has=value, majority=majority, count=count, others=others)


def aspects_of(facts: Mapping[str, Any], *, is_driver: bool = False) -> dict[str, str]:
    """What is compared among machines. The driver's machine may be another kind: only versions of it count."""
    return dict(_versions(facts)) | ({} if is_driver else dict(_state(facts)))


def _versions(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "python", facts["python"]
    if facts["tensorflow"]:
        yield "tensorflow", facts["tensorflow"]["version"]
    yield from facts["packages"].items()
    for name in _EXPECTED:
        if name not in facts["packages"]:
            yield name, "missing"


def _state(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "system", facts["system"]
    yield "cores", str(facts["cpus"])
    if not facts["tensorflow"]:
        yield "tensorflow", "missing"
    for key, name in (("folder", "working folder"), ("temporary", "temporary folder")):
        yield name, facts[key]["problem"] or "ok"
    for limit, value in facts["limits"].items():
        yield f"limit of {limit.replace('_', ' ')}", "none" if value in (None, -1) else str(value)
    for name in ("HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME", "LD_LIBRARY_PATH"):
        yield name, facts["variables"].get(name, "not set")
    yield "libhdfs", facts["libhdfs"] or "none"
    yield "gpus", ", ".join(gpu["name"] for gpu in facts["gpus"]["gpus"]) or "none"
    yield "gpu driver", facts["gpu_driver"] or "none"
    for name, tried in facts["imports"].items():
        yield f"import {name}", tried["error"] or "ok"
    for verb in ("reads", "writes"):
        for path, problem in facts[verb].items():
            yield f"{verb.removesuffix('s')} {path}", problem or "ok"
    reached = facts["driver"]
    yield "reach the driver", reached["error"] or "ok"
    if not reached["error"]:
        skew = reached["skew_s"] if abs(reached["skew_s"]) > SKEW_S + reached["within_s"] else 0.0
        yield "clock", f"{-skew:+.0f} s" if skew else "ok"
    missed = sum(bool(peer["error"]) for peer in facts["peers"].values())
    yield "reach other executors", f"{missed} of {len(facts['peers'])} not reached" if missed else "ok"
