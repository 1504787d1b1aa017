"""What the probe of driver and executors means. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfos_cli.envcheck.check import Check, Status
from tfos_cli.envcheck.differences import SKEW_S, Difference, aspects_of, differences, labels_of
from tfos_cli.envcheck.rules import Needs, machine_checks
from tfos_cli.envcheck.versions import version_key
from tfos_core.probe.places import NO_CLIENT, NO_FILES, is_local

__all__ = ("DRIVER", "ClusterReport", "cluster_report")

DRIVER = "the driver"
#: Different versions of these keep nodes from working together; of others the first number has to be the same.
_SAME = ("tensorflow", "tf_keras", "keras")
_COMPATIBLE = ("numpy", "pandas", "pyarrow", "pyspark", "protobuf")

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """Checks of all machines, and in what single ones differ."""

    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]


def cluster_report(probe: Facts, needs: Needs) -> ClusterReport:
    """Judge what `tfos_core.probe.run` gathered.

    Args:
        needs: of the job's nodes.
    """
    driver, executors = probe["driver"], probe["executors"]
    labels = labels_of(executors)
    found = differences(
        {label: aspects_of(facts) for label, facts in zip(labels, executors, strict=True)}, aspects_of(driver, is_driver=True)
    )
    checks = [*_executors(probe, labels)]
    checks += [*_versions(found), *machine_checks(driver, Needs(tensorflow=False), (DRIVER,))]
    checks += [*_imports(driver, (DRIVER,)), *_places(driver, (DRIVER,), driver["through_spark"])]
    for label, facts in zip(labels, executors, strict=True):
        checks += machine_checks(facts, needs, (label,))
        checks += _imports(facts, (label,))
        checks += _places(facts, (label,), driver["through_spark"])
        checks += _network(facts, label, labels, driver)
    checks += _settings(probe)
    return ClusterReport(checks=tuple(checks), differences=found)


def _executors(probe: Facts, labels: Sequence[str]) -> Iterator[Check]:
    there, expected = len(labels), probe["expected"]
    if probe["problem"]:
        yield Check(id="executors", status=Status.FAILURE, found=probe["problem"], fix=probe["hint"])
    else:
        yield Check(id="executors", status=Status.OK, found=f"{there} of {expected}: {', '.join(labels)}")


def _versions(found: Sequence[Difference]) -> Iterator[Check]:
    for difference in found:
        aspect, has, majority = difference.aspect, difference.has, difference.majority
        digits = 2 if aspect == "python" else None if aspect in _SAME else 1 if aspect in _COMPATIBLE else 0
        if digits == 0:
            continue
        harmful = version_key(has)[:digits] != version_key(majority)[:digits]
        yield Check(
            id="same-versions",
            status=Status.FAILURE if harmful else Status.WARNING,
            found=f"{aspect} {has}, where {difference.count} of {difference.others} others have {majority}",
            fix="Install the same versions on all hosts, or ship one environment with the job (environment.pack).",
            where=(difference.machine,),
        )


def _imports(facts: Facts, where: tuple[str, ...]) -> Iterator[Check]:
    for name, tried in facts["imports"].items():
        if name == "tensorflow":
            continue  # with its version
        if tried["error"]:
            fix = "Files beside the entrypoint travel with the job; packages have to be installed, or shipped (environment.pack)."
            found = f"{name} can not be imported: {tried['error']}"
            yield Check(id="entrypoint", status=Status.FAILURE, found=found, fix=fix, where=where)
        else:
            yield Check(id="entrypoint", status=Status.OK, found=name, where=where)


def _places(facts: Facts, where: tuple[str, ...], through_spark: Mapping[str, str]) -> Iterator[Check]:
    for verb, word in (("reads", "read"), ("writes", "written")):
        for path, problem in facts[verb].items():
            if not problem:
                yield Check(id="storage", status=Status.OK, found=f"{path} can be {word}", where=where)
            elif problem == NO_FILES:
                fix = "For a stream that is fine; training on data needs some."
                yield Check(id="storage", status=Status.WARNING, found=f"{path} has no files", fix=fix, where=where)
            elif problem.startswith(NO_CLIENT) and through_spark.get(path) == "":
                found = f"{path} is reached by Spark only: {problem.removeprefix(NO_CLIENT)}"
                fix = "Nodes that read or write there themselves need pip install 'tfos[hdfs]'; rows that Spark feeds do not."
                yield Check(id="storage", status=Status.WARNING, found=found, fix=fix, where=where)
            else:
                reason = through_spark.get(path) or problem.removeprefix(NO_CLIENT)
                fix = _PLACE if is_local(path) else "Is its server up, and does HADOOP_CONF_DIR name its settings?"
                found = f"{path} can not be {word}: {reason}"
                yield Check(id="storage", status=Status.FAILURE, found=found, fix=fix, where=where)


_PLACE = "A path without a scheme is another folder on every host: make it there, mount it everywhere, or use hdfs:// or s3://."


def _network(facts: Facts, label: str, labels: Sequence[str], driver: Facts) -> Iterator[Check]:
    reached = facts["driver"]
    place = f"{driver['address']}:{driver['port']}"
    if reached["error"]:
        fix = "Set TFOS_SERVER_HOST to an address that executors reach, TFOS_SERVER_PORT to a range that the firewall lets through."
        found = f"the driver is not reached at {place}: {reached['error']}"
        yield Check(id="reach-driver", status=Status.FAILURE, found=found, fix=fix, where=(label,))
    else:
        yield Check(id="reach-driver", status=Status.OK, found=f"the driver is reached at {driver['address']}", where=(label,))
        yield from _clock(reached, label)
    missed = [f"{labels[int(peer)]} ({answer['error']})" for peer, answer in facts["peers"].items() if answer["error"]]
    if missed:
        fix = "Nodes listen on any free port of their host: let executors reach each other on all ports above 1023."
        found = f"does not reach {', '.join(missed[:5])}{f' and {len(missed) - 5} more' if len(missed) > 5 else ''}"
        yield Check(id="reach-executors", status=Status.FAILURE, found=found, fix=fix, where=(label,))
    elif facts["peers"]:
        yield Check(id="reach-executors", status=Status.OK, found="executors reach each other", where=(label,))


def _clock(reached: Facts, label: str) -> Iterator[Check]:
    skew = -reached["skew_s"]
    if abs(skew) <= SKEW_S + reached["within_s"]:
        yield Check(id="clock", status=Status.OK, found=f"clocks differ by less than {SKEW_S:g} s", where=(label,))
        return
    found = f"the clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the driver's"
    yield Check(id="clock", status=Status.WARNING, found=found, fix="Run an NTP client (chrony) on all hosts.", where=(label,))


def _settings(probe: Facts) -> Iterator[Check]:
    for sentence in probe["settings"]:
        yield Check(id="spark-settings", status=Status.WARNING, found=sentence)
    if probe["driver"]["settings"].get("spark.python.worker.reuse", "true").lower() == "false":
        yield Check(
            id="worker-reuse",
            status=Status.WARNING,
            found="spark.python.worker.reuse is false",
            fix="Use --conf spark.python.worker.reuse=true: every task that feeds rows starts a Python of its own.",
        )
