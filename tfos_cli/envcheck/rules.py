"""What is right or wrong about one machine, from the facts that `tfos_core.probe.machine` gathered there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfos_cli.envcheck.check import Check, Status
from tfos_cli.envcheck.pairs import known_pairs, version_checks
from tfos_cli.envcheck.versions import version_key

__all__ = ("Needs", "machine_checks", "pair_checks")

Facts = Mapping[str, Any]
Checks = Iterator[Check]

_MB, _GB = 1 << 20, 1 << 30
_PYTHONS = ((3, 11), (3, 13))
#: The first driver for CUDA 12, which TensorFlow is built for since 2.14.
_GPU_DRIVER = (525,)
_ENOUGH_FILES = 1024
_ENOUGH_PROCESSES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a job, or any job, asks of a machine: `tensorflow` is False for a driver that only schedules."""

    tensorflow: bool = True
    gpus: int = 0
    legacy_keras: bool = False


def machine_checks(facts: Facts, needs: Needs, where: tuple[str, ...] = ()) -> list[Check]:
    """All checks of one machine."""
    rules: tuple[Callable[[Facts, Needs], Checks], ...] = (
        _platform, _python, _tensorflow, _keras, _pairs, _folders, _shared_memory, _limits, _gpus, _hadoop, _variables,
    )  # fmt: skip
    return [
        Check(id=check.id, status=check.status, found=check.found, fix=check.fix, where=where)
        for rule in rules
        for check in rule(facts, needs)
    ]


def pair_checks(packages: Mapping[str, str], tensorflow: str, python: str) -> Checks:
    """Pairs of packages that are known not to work together, whatever pip thought of them."""
    numpy, pandas, pyarrow, pyspark = (packages.get(name, "") for name in ("numpy", "pandas", "pyarrow", "pyspark"))
    broken = []
    if numpy and version_key(numpy) >= (2,):
        if tensorflow and version_key(tensorflow) < (2, 18):
            broken.append((f"TensorFlow {tensorflow} was built for NumPy 1, and NumPy is {numpy}", "pip install 'numpy<2'"))
        if pandas and version_key(pandas) < (2, 2, 2):
            broken.append((f"pandas {pandas} was built for NumPy 1, and NumPy is {numpy}", "pip install 'pandas>=2.2.2,<3'"))
        if pyarrow and version_key(pyarrow) < (16,):
            broken.append((f"pyarrow {pyarrow} was built for NumPy 1, and NumPy is {numpy}", "pip install 'pyarrow>=16'"))
    if pyspark and pandas and version_key(pandas) >= (3,):
        broken.append((f"pyspark {pyspark} does not support pandas {pandas}", "pip install 'pandas<3'"))
    if pyspark and pyarrow and version_key(pyspark) >= (4,) and version_key(pyarrow) < (15,):
        broken.append((f"pyspark {pyspark} needs pyarrow 15 or newer, and it is {pyarrow}", "pip install 'pyarrow>=15'"))
    if pyspark and version_key(pyspark) < (4,) and version_key(python) >= (3, 13):
        broken.append((f"pyspark {pyspark} does not support Python {python}", "Use Python 3.11 or 3.12, or pyspark 4."))
    for found, fix in broken:
        yield Check(id="packages", status=Status.FAILURE, found=found, fix=fix)
    if not broken:
        known = ", ".join(f"{name} {packages[name]}" for name in ("numpy", "pandas", "pyarrow") if name in packages)
        yield Check(id="packages", status=Status.OK, found=known or "no numpy, pandas or pyarrow")


def _platform(facts: Facts, needs: Needs) -> Checks:
    system = facts["system"]
    if facts["platform"] in ("win32", "cygwin"):
        fix = "Run it on Linux or macOS, or inside WSL 2: nodes outlive Spark's tasks and are handed Unix sockets."
        yield Check(id="platform", status=Status.FAILURE, found=f"Windows ({system}) is not supported", fix=fix)
    elif facts["platform"] == "linux":
        yield Check(id="platform", status=Status.OK, found=system)
    else:
        fix = "Use it for the command line and for jobs on this machine; run clusters on Linux."
        yield Check(id="platform", status=Status.WARNING, found=f"{system} is not tested as a cluster's host", fix=fix)


def _python(facts: Facts, needs: Needs) -> Checks:
    version, oldest, newest = facts["python"], *_PYTHONS
    found = f"Python {version} at {facts['executable']}"
    if version_key(version)[:2] < oldest:
        yield Check(
            id="python", status=Status.FAILURE, found=f"{found} is too old", fix=f"Use {_dotted(oldest)} to {_dotted(newest)}."
        )
    elif version_key(version)[:2] > newest:
        fix = f"Use {_dotted(oldest)} to {_dotted(newest)}."
        yield Check(id="python", status=Status.WARNING, found=f"{found} is newer than what is tested", fix=fix)
    else:
        yield Check(id="python", status=Status.OK, found=found)


def _tensorflow(facts: Facts, needs: Needs) -> Checks:
    if not needs.tensorflow:
        return
    installed = facts["tensorflow"]
    tried = facts.get("imports", {}).get("tensorflow")
    if installed is None and tried is None:
        fix = "pip install tensorflow, or ship an environment that has it (environment.pack)."
        yield Check(id="tensorflow", status=Status.FAILURE, found="TensorFlow is not installed", fix=fix)
        return
    version = installed["version"] if installed else tried["version"]
    if tried is not None and tried["error"]:
        fix = "Import it there by hand: 'python -c \"import tensorflow\"'. Signal 4: the wheel needs a newer CPU."
        yield Check(id="tensorflow", status=Status.FAILURE, found=f"TensorFlow can not be imported: {tried['error']}", fix=fix)
    elif version_key(version) < (2, 16):
        yield Check(id="tensorflow", status=Status.FAILURE, found=f"TensorFlow {version} is too old", fix="Use 2.16 or newer.")
    else:
        imported = f", imported in {tried['seconds']:g} s" if tried is not None else ""
        name = installed["distribution"] if installed else "tensorflow"
        yield Check(id="tensorflow", status=Status.OK, found=f"{name} {version}{imported}")


def _keras(facts: Facts, needs: Needs) -> Checks:
    if not needs.tensorflow or facts["tensorflow"] is None:
        return
    tensorflow, packages = facts["tensorflow"]["version"], facts["packages"]
    keras, legacy = packages.get("keras"), packages.get("tf_keras")
    pair = ".".join(tensorflow.split(".")[:2])
    bad = Status.FAILURE if needs.legacy_keras else Status.WARNING
    if legacy is None:
        fix = f"pip install 'tf_keras=={pair}.*': model.fit on several nodes needs it."
        yield Check(id="keras", status=bad, found=f"there is no tf_keras for TensorFlow {tensorflow}", fix=fix)
    elif version_key(legacy)[:2] != version_key(tensorflow)[:2]:
        found = f"tf_keras {legacy} does not pair with TensorFlow {tensorflow}"
        yield Check(id="keras", status=bad, found=found, fix=f"pip install 'tf_keras=={pair}.*'")
    else:
        yield Check(id="keras", status=Status.OK, found=f"keras {keras or 'missing'}, tf_keras {legacy}")


def _pairs(facts: Facts, needs: Needs) -> Checks:
    tensorflow = facts["tensorflow"]["version"] if facts["tensorflow"] and needs.tensorflow else ""
    yield from pair_checks(facts["packages"], tensorflow, facts["python"])
    yield from version_checks(facts["packages"].get("pyspark", ""), tensorflow, known_pairs())


def _folders(facts: Facts, needs: Needs) -> Checks:
    for key, name in (("folder", "working folder"), ("temporary", "temporary folder")):
        place = facts[key]
        found = f"the {name} {place['path']}"
        if place["problem"]:
            fix = (
                "Make it writable for the user that jobs run as, or name another one (TMPDIR, SPARK_LOCAL_DIRS, SPARK_WORKER_DIR)."
            )
            yield Check(id=key, status=Status.FAILURE, found=f"{found} can not be written: {place['problem']}", fix=fix)
        elif place["free"] is not None and place["free"] < _GB:
            status = Status.FAILURE if place["free"] < 100 * _MB else Status.WARNING
            yield Check(id=key, status=status, found=f"{found} has {_size(place['free'])} left", fix="Make room there.")
        else:
            left = "" if place["free"] is None else f", {_size(place['free'])} free"
            yield Check(id=key, status=Status.OK, found=f"the {name} can be written{left}")


def _shared_memory(facts: Facts, needs: Needs) -> Checks:
    free = facts["shm_free"]
    if free is None or not needs.tensorflow:
        return
    if free < 64 * _MB:
        fix = "Give the container more (docker run --shm-size=1g, an emptyDir of medium Memory on Kubernetes)."
        yield Check(id="shared-memory", status=Status.WARNING, found=f"shared memory has {_size(free)} left", fix=fix)
    else:
        yield Check(id="shared-memory", status=Status.OK, found=f"{_size(free)} free")


def _limits(facts: Facts, needs: Needs) -> Checks:
    limits, bad = facts["limits"], []
    files, processes, space = (limits.get(name) for name in ("open_files", "processes", "address_space"))
    if files is not None and 0 <= files < _ENOUGH_FILES:
        bad.append(
            (f"at most {files} open files", f"Raise it (ulimit -n {_ENOUGH_FILES}): a driver has a connection to every node.")
        )
    if processes is not None and 0 <= processes < _ENOUGH_PROCESSES:
        fix = f"Raise it (ulimit -u {_ENOUGH_PROCESSES}): TensorFlow starts threads by the dozen, and they count."
        bad.append((f"at most {processes} processes and threads", fix))
    if space is not None and space >= 0:
        fix = "Lift it (ulimit -v unlimited): TensorFlow and Java reserve far more addresses than memory."
        bad.append((f"at most {_size(space)} of address space", fix))
    for found, fix in bad:
        yield Check(id="limits", status=Status.WARNING, found=found, fix=fix)
    if not bad:
        shown = "unlimited" if files is None or files < 0 else files
        yield Check(id="limits", status=Status.OK, found=f"open files: {shown}")


def _gpus(facts: Facts, needs: Needs) -> Checks:
    gpus, problem, driver = facts["gpus"]["gpus"], facts["gpus"]["problem"], facts["gpu_driver"]
    granted = facts.get("granted_gpus", [])
    if needs.gpus and not gpus:
        found = f"the job asks for {needs.gpus} GPUs per node, and there is none: {problem or 'nvidia-smi shows none'}"
        yield Check(id="gpus", status=Status.FAILURE, found=found, fix="Use hosts with GPUs and a driver, or set gpus: 0.")
    elif driver and version_key(driver) < _GPU_DRIVER:
        fix = f"Install driver {_dotted(_GPU_DRIVER)} or newer."
        yield Check(id="gpus", status=Status.WARNING, found=f"the NVIDIA driver {driver} is too old for CUDA 12", fix=fix)
    elif driver and problem:
        yield Check(id="gpus", status=Status.WARNING, found=f"there is a driver {driver}, but {problem}", fix="Install nvidia-smi.")
    elif not gpus:
        yield Check(id="gpus", status=Status.OK, found="none")
    else:
        busy = sum(bool(gpu["in_use"]) for gpu in gpus)
        parts = [f"{len(gpus)} ({gpus[0]['name']})", f"{busy} in use" if busy else "", f"driver {driver}" if driver else ""]
        parts.append(f"Spark gives {', '.join(granted)}" if granted else "")
        yield Check(id="gpus", status=Status.OK, found=", ".join(part for part in parts if part))


def _hadoop(facts: Facts, needs: Needs) -> Checks:
    variables = facts["variables"]
    native = facts["packages"].get("hdfs-native")
    parts = [f"{name}={variables[name]}" for name in ("HADOOP_HOME", "HADOOP_CONF_DIR") if name in variables]
    parts += [f"hdfs-native {native}" if native else "", facts["libhdfs"]]
    yield Check(id="hadoop", status=Status.OK, found=", ".join(part for part in parts if part) or "no Hadoop")


def _variables(facts: Facts, needs: Needs) -> Checks:
    for name in ("TF_CONFIG", "TF_USE_LEGACY_KERAS"):
        if name in facts["variables"]:
            fix = "Take it out of the environment: tfos sets it on every node."
            yield Check(id="variables", status=Status.WARNING, found=f"{name} is set", fix=fix)


def _size(size: int) -> str:
    return f"{size / _GB:.1f} GB" if size >= _GB else f"{size // _MB} MB"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
