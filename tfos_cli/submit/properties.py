"""The Spark properties of a job: what TensorFlow on Spark needs, what the spec says, and what the user's own `conf` overrides.

Pure, and the one place that knows how the cluster managers differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tfos_cli.spec.masters import MasterKind, local_cluster, master_kind
from tfos_cli.spec.memory import DRIVER_OVERHEAD_KEYS, driver_overhead
from tfos_cli.spec.places import below
from tfos_cli.spec.values import memory_bytes
from tfos_cli.submit.gpus import gpu_properties, shared_gpu_properties, shipped_script
from tfos_cli.submit.one_per_executor import task_properties
from tfos_core.errors import ConfigError

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.spec.model import JobSpec

__all__ = (
    "PACKED_PYTHON",
    "Location",
    "Scratch",
    "cluster_kind",
    "is_on_this_machine",
    "local_url",
    "spark_master",
    "spark_properties",
)

#: Without these, nodes do not land one per executor, or rows do not reach every node.
ENGINE_PROPERTIES: Mapping[str, str] = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    # With the default of 3 s, data cached while one executor was free sends every feed task to that executor.
    "spark.locality.wait": "0s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # A job that is too big for its executors is refused in 3 s; the defaults look 40 times, every 15 s.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
}
LOOPBACK = "127.0.0.1"
#: The folder of a shipped environment in an executor's working folder, and the interpreter in it.
ENVIRONMENT = "environment"
PACKED_PYTHON = f"./{ENVIRONMENT}/bin/python"
#: An executor unpacks archives before its first heartbeat. With the usual 120 s Spark gives it up while it unpacks TensorFlow on a
#: slow disk.
_UNPACK_S = 600

#: Properties that are lists with commas, where the user's `conf` adds to the spec instead of replacing it.
_LISTS = ("spark.archives", "spark.files", "spark.jars", "spark.jars.packages", "spark.submit.pyFiles")
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
#: For the Java processes of a cluster inside this machine. They share its cores with TensorFlow, and most of what they do is to
#: start: without the second compiler the digits example takes 66 seconds of CPU time instead of 103 (measured on two cores).
_SMALL_JAVA = "-XX:TieredStopAtLevel=1"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the files of a run and the interpreter are; `plan` is on this machine.

    `environment` is the archive of a Python environment for the executors, a path or a URL, None when they have their own.
    `spark_version` is None for a Spark that can do all that tfos knows of.
    """

    run_folder: Path
    plan: Path
    python: str
    py_files: tuple[Path, ...]
    environment: str | None = None
    spark_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """What Spark writes for a cluster inside this machine: one folder, removed at the end of the run."""

    folder: Path

    @property
    def home(self) -> Path:
        """The private Spark home."""
        return self.folder / "home"

    @property
    def temporary(self) -> Path:
        """`java.io.tmpdir`, which must exist when Java starts."""
        return self.folder / "tmp"

    @property
    def local(self) -> Path:
        """`spark.local.dir`."""
        return self.folder / "local"

    @property
    def warehouse(self) -> Path:
        """`spark.sql.warehouse.dir`, which Spark would make in the working folder as soon as SQL is used."""
        return self.folder / "warehouse"


def cluster_kind(spec: JobSpec) -> MasterKind:
    """The cluster manager of a spec.

    Raises:
        ConfigError: a master or a deploy mode that no job of ours can run with.
    """
    kind = master_kind(spec.spark.master)
    if kind is MasterKind.LOCAL:
        raise ConfigError(
            f"spark.master is {spec.spark.master!r}, which has one process for all nodes: one of them would get all the rows",
            f"Leave spark.master out, or use 'local-cluster[{spec.num_executors},{spec.spark.executor_cores},1024]'.",
        )
    if kind is MasterKind.UNKNOWN:
        raise ConfigError(
            f"spark.master is {spec.spark.master!r}, which is no master of Spark",
            "Use spark://HOST:PORT, yarn or k8s://URL, or leave it out to run on this machine.",
        )
    if spec.spark.deploy_mode == "cluster" and kind not in (MasterKind.YARN, MasterKind.KUBERNETES):
        where = spec.spark.master or "this machine"
        raise ConfigError(
            f"spark.deploy_mode is 'cluster', but Spark has no such mode for Python programs on {where}",
            "Use 'client' there, or submit to YARN or Kubernetes.",
        )
    return kind


def is_on_this_machine(spec: JobSpec) -> bool:
    """Whether the executors are processes of this machine, in a private Spark home of links."""
    return master_kind(spec.spark.master) in (MasterKind.EMBEDDED, MasterKind.LOCAL_CLUSTER)


def spark_master(spec: JobSpec, properties: Mapping[str, str]) -> str:
    """The value of `--master`; the embedded default is as many executors as the spec says, each a process of its own."""
    if spec.spark.master is not None:
        return spec.spark.master
    memory = properties["spark.executor.memory"]
    try:
        memory_mb = -(-memory_bytes(f"{memory}m" if memory.isdigit() else memory) // (1 << 20))
    except (ValueError, LookupError):
        raise ConfigError(f"spark.executor.memory is {memory!r}, which is no size", "Write for example 1g.") from None
    return f"local-cluster[{spec.num_executors},{properties['spark.executor.cores']},{memory_mb}]"


def local_url(path: Path) -> str:
    """A path as Spark reads it back: itself, or a URL when it has a character that Spark would take for something else.

    Spark reads `%20` as a space, and with a space in the path takes `#name` for a part of it (tried on 4.3). A comma can not be
    saved: `%2C` is decoded before the list is split.
    """
    quoted = quote(str(path), safe="/*?[]{}~+@=:&$!'(),")
    return str(path) if quoted == str(path) else f"file://{quoted}"


def spark_properties(resolved: ResolvedSpec, location: Location) -> dict[str, str]:
    """Every property that is submitted, in the order in which a reader looks for them.

    Raises:
        ConfigError: a path that Spark can not be given.
    """
    spec = resolved.spec
    kind = cluster_kind(spec)
    ours = dict(ENGINE_PROPERTIES)
    ours |= _resources(resolved, kind)
    ours |= gpu_properties(spec, kind)
    if resolved.model_inference is not None:
        ours |= shared_gpu_properties(spec, kind, cores=_cores(spec))
    else:
        ours |= task_properties(spec, kind, cores=_cores(spec), version=location.spark_version)
    ours |= _placement(spec, kind, location)
    if spec.spark.deploy_mode == "cluster":
        ours |= _driver_on_cluster(spec, kind)
    ours |= _environment(spec, kind, location)
    ours |= _files(resolved, location)
    return _overlaid(ours, spec.spark.conf)


def _resources(resolved: ResolvedSpec, kind: MasterKind) -> dict[str, str]:
    spark = resolved.spec.spark
    cores = spark.executor_cores
    if kind is MasterKind.LOCAL_CLUSTER and (sizes := local_cluster(spark.master or "")):
        cores = sizes[1]
    properties = {
        "spark.driver.memory": spark.driver_memory,
        "spark.executor.cores": str(cores),
        "spark.executor.memory": spark.executor_memory,
    }
    if resolved.memory_overhead.memory is not None:
        properties["spark.executor.memoryOverhead"] = resolved.memory_overhead.memory
    if spark.queue is not None and kind is MasterKind.YARN:
        properties["spark.yarn.queue"] = spark.queue
    return properties


def _placement(spec: JobSpec, kind: MasterKind, location: Location) -> dict[str, str]:
    match kind:
        case MasterKind.YARN | MasterKind.KUBERNETES:
            return {"spark.executor.instances": str(spec.num_executors)}
        case MasterKind.STANDALONE:
            # Standalone has no number of executors (--num-executors is ignored): it starts as many as these cores make up.
            return {"spark.cores.max": str(spec.num_executors * _cores(spec))}
        case _:
            return _loopback(location)


def _driver_on_cluster(spec: JobSpec, kind: MasterKind) -> dict[str, str]:
    """What a driver in a container needs; the container is killed when it takes more than heap and overhead."""
    properties = {}
    if not DRIVER_OVERHEAD_KEYS & spec.spark.conf.keys():
        properties["spark.driver.memoryOverhead"] = f"{driver_overhead(spec) >> 20}m"
    if kind is MasterKind.YARN:
        # A second attempt of YARN's would begin the run anew behind the back of whoever follows it; `restart` is the way.
        properties["spark.yarn.maxAppAttempts"] = "1"
    return properties


def _cores(spec: JobSpec) -> int:
    """Cores of an executor; the user's own property decides, as it does for Spark."""
    configured = spec.spark.conf.get("spark.executor.cores", str(spec.spark.executor_cores))
    if not configured.isdecimal() or configured == "0":
        raise ConfigError(f"spark.executor.cores is {configured!r}, which is no number of cores", "Use 1 or more.")
    return int(configured)


def _loopback(location: Location) -> dict[str, str]:
    """A cluster inside this machine: it needs no network, offers no web page, and writes into the run's folder only."""
    scratch = Scratch(folder=location.run_folder / "spark")
    # What Java puts into the machine's temporary folder (jars, sockets, hsperfdata_*) would stay there when the driver is killed.
    java = f"{_quoted(f'-Djava.io.tmpdir={scratch.temporary}')} {_SMALL_JAVA} -XX:-UsePerfData"
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.local.dir": str(scratch.local),
        "spark.sql.warehouse.dir": str(scratch.warehouse),
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
    }


def _environment(spec: JobSpec, kind: MasterKind, location: Location) -> dict[str, str]:
    variables = dict(spec.environment.vars)
    properties = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    if location.environment is not None:
        properties["spark.storage.blockManagerHeartbeatTimeoutMs"] = f"{_UNPACK_S * 1000}"
        variables["PYSPARK_PYTHON"] = PACKED_PYTHON
    if spec.spark.deploy_mode != "cluster":
        return properties
    prefix = "spark.yarn.appMasterEnv." if kind is MasterKind.YARN else "spark.kubernetes.driverEnv."
    if kind is MasterKind.YARN:
        # Python is where it is here, unless the spec says otherwise; on Kubernetes it is the image's.
        variables.setdefault("PYSPARK_PYTHON", location.python)
    else:
        # Spark takes these from the environment of spark-submit; a pod whose variables are named twice is refused by some tools.
        variables = {name: value for name, value in variables.items() if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    return properties | {f"{prefix}{name}": value for name, value in variables.items()}


def _files(resolved: ResolvedSpec, location: Location) -> dict[str, str]:
    spark = resolved.spec.spark
    files = []
    if spark.deploy_mode == "cluster":
        from tfos_cli.remote.place import private_path

        files = [local_url(location.plan), local_url(private_path(location.run_folder))]
    script = shipped_script(resolved.spec, cluster_kind(resolved.spec), location.run_folder)
    files += [local_url(script)] if script is not None else []
    packed = [f"{_place(location.environment)}#{ENVIRONMENT}"] if location.environment is not None else []
    lists = {
        "spark.submit.pyFiles": [*map(local_url, location.py_files), *_absolute(spark.py_files, resolved.folder)],
        "spark.files": [*files, *_absolute(spark.files, resolved.folder)],
        "spark.archives": [*packed, *_absolute(spark.archives, resolved.folder)],
        "spark.jars": [*_absolute(spark.jars, resolved.folder)],
        "spark.jars.packages": list(spark.packages),
    }
    for key, values in lists.items():
        for value in values:
            if "," in value:
                raise ConfigError(
                    f"{value!r} has a comma, but {key} is a list with commas between its items",
                    "Make each part an item of the list, and rename files and folders with a comma.",
                )
    return {key: ",".join(values) for key, values in lists.items() if values}


def _place(path: str) -> str:
    return path if _URL.match(path) else local_url(Path(path))


def _absolute(paths: Iterable[str], folder: Path) -> Iterator[str]:
    for path in paths:
        if _URL.match(path):
            yield path
        else:
            place, mark, name = path.partition("#")  # as in env.tar.gz#env
            yield f"{local_url(below(folder, place))}{mark}{name}"


def _overlaid(ours: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """The user's properties over ours: lists are joined, options of Java come after ours and so win."""
    merged = dict(ours)
    for key, value in conf.items():
        if key in ours and key in _LISTS:
            merged[key] = f"{ours[key]},{value}"
        elif key in ours and key in _JAVA_OPTIONS:
            merged[key] = f"{ours[key]} {value}"
        else:
            merged[key] = value
    return merged


def _quoted(option: str) -> str:
    """One option of Java as Spark's own splitting of such strings reads it."""
    if not re.search(r"[\s\"'\\]", option):
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
