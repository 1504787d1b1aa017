"""Whether a SparkContext can carry a cluster, and how its node tasks land one per executor."""

from __future__ import annotations

import logging
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfos_core.cancellation import Cancellation
from tfos_core.clear_text import CLEAR_TEXT, encryption_settings, is_on, stays_on_host
from tfos_core.errors import ConfigError, ReservationTimeoutError
from tfos_core.events import EventSink, ReservationWaiting
from tfos_core.settings import PLACEMENT_WAIT_S
from tfos_core.spark_errors import reason_of
from tfos_core.topology import ClusterPlan, InputMode

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

__all__ = ("Executor", "Placement", "check_context", "node_cores", "place", "registered_executors")

logger = logging.getLogger(__name__)

#: How often Spark is asked whether its executors are there, in seconds; it has no event for it that Python could wait for.
_LOOK_S = 0.1
#: How often the caller is told what is missing, in seconds.
_TELL_S = 5.0

_GPUS = "spark.executor.resource.gpu.amount"
_TASK_GPUS = "spark.task.resource.gpu.amount"
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """A registered executor: Spark's id, host, and cores."""

    id: str
    host: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where node tasks go: each takes `cores` cores and `gpus` GPUs of its executor.

    `profile` is what makes it; None where the settings of all tasks do, which is the way of a Spark without stage-level scheduling.
    """

    profile: ResourceProfile | None
    cores: int
    executors: tuple[Executor, ...]
    gpus: int = 0


def check_context(sc: SparkContext, input_mode: InputMode) -> list[str]:
    """Refuse a context that can not work; returns sentences about settings that may harm.

    Raises:
        ConfigError: Windows, a stopped context, a master that runs everything in one process, settings that move executors about,
            a remote session.
    """
    if platform.system() == "Windows":
        raise ConfigError(
            "tfos does not run on Windows: Spark's Python workers there can not hand sockets to other processes",
            "Use Linux, or WSL 2.",
        )
    if not hasattr(sc, "_jsc"):
        raise ConfigError(
            f"a {type(sc).__name__} is not a SparkContext",
            "Pass spark.sparkContext of a classic session; Spark Connect has no executors to run nodes on.",
        )
    if sc._jsc is None:
        raise ConfigError("the SparkContext was stopped, so it starts no nodes", "Create a new SparkSession or SparkContext first.")
    master = str(sc.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        raise ConfigError(
            f"master is {master!r}: all Spark tasks share one process there, so one node would get all rows and the others none",
            "Use separate executor processes on this machine: --master 'local-cluster[2,1,1024]' (executors, cores, MB).",
        )
    conf = sc.getConf()
    if is_on(conf.get("spark.dynamicAllocation.enabled", "false")):
        raise ConfigError(
            "spark.dynamicAllocation.enabled is true, so Spark may take away executors that nodes live on",
            "Set spark.dynamicAllocation.enabled=false and a fixed number of executors.",
        )
    warnings = []
    if is_on(conf.get("spark.speculation", "false")):
        warnings.append("spark.speculation is true, so Spark may start feed tasks twice; set spark.speculation=false")
    if input_mode is InputMode.SPARK and conf.get("spark.locality.wait", "3s") not in ("0", "0s", "0ms"):
        warnings.append(
            "spark.locality.wait is not 0s, so Spark may send all partitions to the executors that cached them; "
            "set spark.locality.wait=0s"
        )
    encrypted = encryption_settings(conf.get)
    if encrypted and not master.startswith("local") and not stays_on_host(conf.get("spark.driver.host", "") or ""):
        warnings.append(f"{encrypted[0]} is on, {CLEAR_TEXT} (docs/security.md says what to do)")
    return warnings


def place(
    sc: SparkContext,
    plan: ClusterPlan,
    input_mode: InputMode,
    *,
    timeout: float,
    cancellation: Cancellation,
    emit: EventSink,
    gpus: int = 0,
    patient: bool = False,
) -> Placement:
    """Wait until as many executors are there as the plan has nodes on executors.

    Args:
        timeout: seconds; at most `PLACEMENT_WAIT_S` of them are used.
        emit: gets ReservationWaiting every few seconds, with the roles that have no executor yet and Spark's numbers.
        gpus: how many GPUs of its executor a node task asks of Spark's scheduler.
        patient: an executor was lost and may be replaced: use all of `timeout`, and wait until Spark has forgotten the lost one.

    Raises:
        ReservationTimeoutError: too few executors came, or it is known that too few can come; names the roles left over.
        ConfigError: rows would reach executors that have no node.
        InterruptedRunError: cancelled.
    """
    needed = len(plan.on_executors)
    deadline = timeout if patient else min(timeout, PLACEMENT_WAIT_S)
    most = _most_executors(sc)
    if most is not None and most < needed:
        raise _too_few(sc, plan, most, f"{most} available by the settings of this application ({_sizes(sc)})")
    started = told = time.monotonic()
    while True:
        cancellation.check()
        executors = registered_executors(sc)
        if len(executors) >= needed:
            _refuse_too_large_tasks(sc, plan, executors)
        placement = _fit(sc, executors, gpus)
        slots = _slots(sc, placement) if len(executors) >= needed else len(executors)
        waited = time.monotonic() - started
        too_many = patient and len(executors) > needed and waited < deadline
        if slots >= needed and not too_many:
            break
        missing = tuple(slot.name for slot in plan.on_executors[slots:])
        if waited >= deadline:
            raise _too_few(sc, plan, slots, f"{slots} available after {waited:.0f} s ({_sizes(sc)})")
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            reason = f"{slots} of {needed} executors are there; {_sizes(sc)}"
            emit(ReservationWaiting(missing=missing, waited_s=round(waited, 1), timeout_s=timeout, reason=reason))
        time.sleep(_LOOK_S)
    if input_mode is InputMode.SPARK and len(executors) > needed:
        raise ConfigError(
            f"{len(executors)} executors are there for {needed} nodes, so rows on {len(executors) - needed} of them reach no node",
            f"Ask for {len(executors)} nodes, or limit the application to {needed} executors (Standalone: "
            f"spark.cores.max={needed * placement.cores}; YARN and Kubernetes: spark.executor.instances={needed}).",
        )
    return placement


def registered_executors(sc: SparkContext) -> tuple[Executor, ...]:
    """The live executors of the application, the driver not counted."""
    found = sc._jsc.sc().statusStore().executorList(True)
    executors = []
    for position in range(found.size()):
        summary = found.apply(position)
        if summary.id() != "driver":
            executors.append(Executor(id=summary.id(), host=summary.hostPort().rpartition(":")[0], cores=int(summary.totalCores())))
    return tuple(executors)


def node_cores(cores: Sequence[int], task_cpus: int) -> int:
    """How many cores the smallest executor offers, which is what a node task asks for.

    Args:
        cores: of every executor.
        task_cpus: `spark.task.cpus`.

    Raises:
        ConfigError: an executor is so large that Spark would start two nodes in it.
    """
    smallest, largest = min(cores), max(cores)
    if largest >= 2 * max(smallest, task_cpus):
        raise ConfigError(
            f"executors have from {smallest} to {largest} cores, so Spark would start two nodes in one of them",
            f"Set spark.executor.cores={smallest}, so that all executors are of one size.",
        )
    return smallest


def _refuse_too_large_tasks(sc: SparkContext, plan: ClusterPlan, executors: tuple[Executor, ...]) -> None:
    """Spark itself waits for ever when every executor has fewer cores than a task needs."""
    task_cpus = int(sc.getConf().get("spark.task.cpus", "1"))
    most = max((executor.cores for executor in executors), default=task_cpus)
    if most < task_cpus:
        detail = f"0 available: a task needs {task_cpus} cores, and no executor has more than {most}"
        raise _too_few(sc, plan, 0, f"{detail} ({_sizes(sc)})")


def _fit(sc: SparkContext, executors: tuple[Executor, ...], gpus: int) -> Placement:
    """Node tasks take all cores of an executor, and GPUs, through stage-level scheduling where the defaults do not say so already.

    GPUs are asked for here and not in `spark.task.resource.gpu.amount`, which would let no more feed tasks run than there are GPUs.
    """
    task_cpus = int(sc.getConf().get("spark.task.cpus", "1"))
    cores = node_cores([executor.cores for executor in executors if executor.cores] or [_configured_cores(sc) or 1], task_cpus)
    if task_cpus >= cores and (not gpus or sc.getConf().get(_TASK_GPUS, None) == str(gpus)):
        return Placement(profile=None, cores=cores, executors=executors, gpus=gpus)
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    requests = TaskResourceRequests().cpus(cores)
    if gpus:
        requests = requests.resource("gpu", gpus)
    profile = _known(sc, ResourceProfileBuilder().require(requests).build)
    return Placement(profile=profile, cores=cores, executors=executors, gpus=gpus)


def _known(sc: SparkContext, profile: ResourceProfile) -> ResourceProfile:
    """The profile with these requests that Spark has already: it keeps all that it was ever told of."""
    from pyspark.resource import ResourceProfile

    known = sc._jsc.sc().resourceProfileManager().getEquivalentProfile(profile._java_resource_profile)
    return ResourceProfile(_java_resource_profile=known.get()) if known.isDefined() else profile


def _slots(sc: SparkContext, placement: Placement) -> int:
    """How many node tasks Spark could start at this moment, by its own count."""
    scala = sc._jsc.sc()
    if placement.profile is None:
        profile = scala.resourceProfileManager().defaultResourceProfile()
    else:
        profile = placement.profile._java_resource_profile
        try:
            # Spark answers only for profiles that it knows.
            scala.resourceProfileManager().addResourceProfile(profile)
        except Exception as exc:
            gpus = f" and {_TASK_GPUS}={placement.gpus}" if placement.gpus else ""
            raise ConfigError(
                f"Spark {sc.version} on {sc.master} can not give a node more of an executor than other tasks get, so that two "
                f"could share one: {reason_of(exc)}",
                f"Set spark.task.cpus={placement.cores}{gpus} before the SparkContext starts, which also means one feed task at a "
                "time on each executor.",
            ) from exc
    return int(scala.maxNumConcurrentTasks(profile))


def _most_executors(sc: SparkContext) -> int | None:
    """How many executors the application can ever get, where its settings say so."""
    master = str(sc.master)
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match[1])
    conf = sc.getConf()
    cores = _configured_cores(sc)
    if master.startswith("spark://") and cores and (limit := conf.get("spark.cores.max", None)):
        return int(limit) // cores
    if not master.startswith("spark://") and (instances := conf.get("spark.executor.instances", None)):
        return int(instances)
    return None


def _configured_cores(sc: SparkContext) -> int | None:
    if match := _LOCAL_CLUSTER.fullmatch(str(sc.master)):
        return int(match[2])
    cores = sc.getConf().get("spark.executor.cores", None)
    return int(cores) if cores else None


def _sizes(sc: SparkContext) -> str:
    conf = sc.getConf()
    cores = _configured_cores(sc)
    parts = [f"executors of {cores or 'all'} cores and {conf.get('spark.executor.memory', '1g')} memory"]
    parts += [f"{name}={value}" for name in ("spark.cores.max", "spark.task.cpus", _GPUS) if (value := conf.get(name, None))]
    parts += [f"{executor.id} on {executor.host} with {executor.cores} cores" for executor in registered_executors(sc)]
    return ", ".join(parts)


def _too_few(sc: SparkContext, plan: ClusterPlan, have: int, detail: str) -> ReservationTimeoutError:
    needed = plan.on_executors
    missing = tuple(slot.name for slot in needed[have:])
    gpus = ""
    if sc.getConf().get(_GPUS, "0") != "0":
        # Standalone starts no executor on a Worker that offers no GPU, and says nothing.
        gpus = " Are there so many GPUs (on Standalone: do the Workers declare them)? Else take gpus.source nvidia-smi."
    return ReservationTimeoutError(
        f"{len(needed)} nodes need {len(needed)} executors, {detail}; no executor for {', '.join(missing)}",
        "Ask for fewer nodes, or give the application more executors or smaller ones "
        f"(spark.executor.cores, spark.executor.memory, spark.cores.max) on {sc.master}.{gpus}",
        missing,
    )
