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
    for aspect in dict.fromkeys(aspect for values in machines.values() for aspect in values):
        has = {name: values[aspect] for name, values in machines.items() if aspect in values}
        votes = Counter(has.values())
        if aspect in reference:
            votes[reference[aspect]] += 1
        if len(votes) < 2:
            continue
        majority = max(votes, key=lambda value: (votes[value], value == reference.get(aspect), value.startswith("ok")))
        for name, value in has.items():
            if value != majority:
                count, others = votes[majority], votes.total() - 1
                found.append(Difference(machine=name, aspect=aspect, has=value, majority=majority, count=count, others=others))
    most = Counter(difference.machine for difference in found)
    order = list(machines)
    return tuple(sorted(found, key=lambda difference: (-most[difference.machine], order.index(difference.machine))))


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
