"""The probe of a whole application: places one task on every executor and gathers what all of them found."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfos_core.cancellation import Cancellation
from tfos_core.errors import ReservationTimeoutError
from tfos_core.events import EventSink
from tfos_core.gpu_request import resolve_request
from tfos_core.jobplan import ProbePlan
from tfos_core.launch import driver_host
from tfos_core.placement import Placement, check_context, place, registered_executors
from tfos_core.probe.imports import try_imports
from tfos_core.probe.machine import machine_facts
from tfos_core.probe.places import is_local, try_reading, try_writing
from tfos_core.probe.reach import Listener
from tfos_core.probe.task import ProbeTask
from tfos_core.reservation.address import HOST_VARIABLE, PORT_VARIABLE, default_host, listen, parse_ports
from tfos_core.spark_errors import python_error, reason_of
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("ProbeResult", "probe")


@dataclass(slots=True, kw_only=True)
class ProbeResult:
    """What was found; all values are JSON.

    `problem` and `hint` say why not all executors could be probed; `settings` are sentences about the application's own settings.
    """

    driver: dict[str, Any]
    executors: list[dict[str, Any]] = field(default_factory=list)
    expected: int = 0
    problem: str = ""
    hint: str = ""
    settings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "driver": self.driver,
            "executors": self.executors,
            "expected": self.expected,
            "problem": self.problem,
            "hint": self.hint,
            "settings": self.settings,
        }


def probe(
    sc: SparkContext,
    plan: ProbePlan,
    count: int,
    *,
    timeout: float,
    emit: EventSink,
    cancellation: Cancellation,
    gpus: int = 0,
    gpu_source: str = "auto",
    environment: Mapping[str, str],
) -> ProbeResult:
    """Probe the driver and `count` executors, or as many as there are.

    Args:
        timeout: seconds to wait for executors.
        gpus: GPUs per node that the job asks for.
        environment: variables that the job sets for its nodes.

    Raises:
        ConfigError: the application can carry no nodes at all.
        InterruptedRunError: cancelled.
    """
    settings = check_context(sc, InputMode.TENSORFLOW)
    modules = (plan.entrypoint,) if plan.entrypoint else ()
    remote = [path for path in (*plan.reads, *plan.writes) if not is_local(path)]
    with _driver_listener(sc) as (host, listener):
        result = ProbeResult(
            driver=_driver_facts(host, listener.port, plan, modules, sc, remote), expected=count, settings=settings
        )
        request = resolve_request(gpus, gpu_source, master=str(sc.master), conf=dict(sc.getConf().getAll()))
        placement = _place(sc, result, count, timeout=timeout, emit=emit, cancellation=cancellation, gpus=request.from_spark)
        if placement is None:
            return result
        task = ProbeTask(
            driver=(host, listener.port), modules=modules, reads=plan.reads, writes=plan.writes, environment=dict(environment)
        )
        tasks = min(count, len(placement.executors))
        numbers = sc.parallelize(range(tasks), tasks)
        if placement.profile is not None:
            numbers = numbers.withResources(placement.profile)
        try:
            texts = numbers.barrier().mapPartitions(task).collect()
        except Exception as exc:  # noqa: BLE001 - that tasks can not run is what is to be found out
            cancellation.check()
            reason = reason_of(exc)
            known = python_error(reason)
            result.problem = known.message if known is not None else f"Spark could not run the probe: {reason}"
            result.hint = (known.hint if known is not None else None) or "Read the driver's log: tfos logs RUN_ID --node driver."
            return result
    result.executors = [json.loads(text) for text in texts]
    return result


def _place(
    sc: SparkContext,
    result: ProbeResult,
    count: int,
    *,
    timeout: float,
    emit: EventSink,
    cancellation: Cancellation,
    gpus: int,
) -> Placement | None:
    """Where tasks go; with fewer executors than wanted, on those that there are, and the result says so."""
    try:
        return place(
            sc,
            ClusterPlan.build(count),
            InputMode.TENSORFLOW,
            timeout=timeout,
            cancellation=cancellation,
            emit=emit,
            gpus=gpus,
        )
    except ReservationTimeoutError as exc:
        result.problem, result.hint = exc.message, exc.hint or ""
        there = len(registered_executors(sc))
    if there == 0:
        return None
    try:
        return place(
            sc,
            ClusterPlan.build(there),
            InputMode.TENSORFLOW,
            timeout=timeout,
            cancellation=cancellation,
            emit=emit,
        )
    except ReservationTimeoutError:
        return None


@contextmanager
def _driver_listener(sc: SparkContext) -> Iterator[tuple[str, Listener]]:
    """Listens where the server of a run would, under the address that nodes would be told."""
    host = (os.environ.get(HOST_VARIABLE) or driver_host(sc) or default_host()).strip().strip("[]")
    with Listener(listen(host, parse_ports(os.environ.get(PORT_VARIABLE, "")))) as listener:
        yield host, listener


def _driver_facts(
    host: str, port: int, plan: ProbePlan, modules: tuple[str, ...], sc: SparkContext, remote: list[str]
) -> dict[str, Any]:
    return machine_facts() | {
        "address": host,
        "port": port,
        "spark": str(sc.version),
        "master": str(sc.master),
        "imports": try_imports(modules),
        "reads": try_reading(plan.reads),
        "writes": try_writing(plan.writes),
        "through_spark": {path: _spark_problem(sc, path) for path in remote},
        "settings": {name: value for name in _SETTINGS if (value := sc.getConf().get(name, None)) is not None},
        "python_path": [entry for entry in sys.path if entry.endswith(".zip")],
    }


_SETTINGS = ("spark.python.worker.reuse", "spark.authenticate", "spark.dynamicAllocation.enabled", "spark.speculation")


def _spark_problem(sc: SparkContext, path: str) -> str:
    """Why Spark's own client does not reach the file system of a path; empty when it does."""
    jvm: Any = sc._jvm
    try:
        place = jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(sc._jsc.hadoopConfiguration())
        system.getFileStatus(jvm.org.apache.hadoop.fs.Path("/"))
    except Exception as exc:  # noqa: BLE001 - whatever Hadoop says is the finding
        return reason_of(exc)
    return ""
