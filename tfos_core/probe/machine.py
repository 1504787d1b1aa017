"""Facts about one machine: versions, memory, disk, limits, GPUs, variables. Imports nothing of what it looks for."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfos_core import nvidia_smi
from tfos_core.gpu import VISIBLE_DEVICES, GpuSurvey

__all__ = ("PACKAGES", "TENSORFLOW_DISTRIBUTIONS", "machine_facts", "write_problem")

#: Names under which the module `tensorflow` is distributed.
TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-gpu", "tensorflow-intel", "tensorflow-cpu-aws",
    "tensorflow-aarch64", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu", "tf-nightly-gpu",
)  # fmt: skip
#: What has to be the same everywhere, or nearly, by the names that pip knows.
PACKAGES = (
    "tf_keras", "keras", "numpy", "pandas", "pyarrow", "protobuf", "grpcio", "pyspark", "tensorboard", "fsspec", "hdfs-native",
)  # fmt: skip

_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not written
#: Only whether they are set, and to which folder: values of others may be anybody's business.
_VARIABLES = (
    "HADOOP_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "JAVA_HOME", "SPARK_HOME", "PYTHONPATH", "TF_CONFIG",
    "TF_USE_LEGACY_KERAS", VISIBLE_DEVICES, "LD_LIBRARY_PATH",
)  # fmt: skip
_NOT_SHOWN = frozenset({"PYTHONPATH"})


def machine_facts(
    environ: Mapping[str, str] = os.environ, *, survey: Callable[[], GpuSurvey] = nvidia_smi.survey, folder: Path | None = None
) -> dict[str, Any]:
    """What there is on this machine; sizes in bytes, None where it can not be known.

    Args:
        folder: where processes work; the current one by default.
    """
    folder = folder or Path.cwd()
    temporary = Path(environ.get("TMPDIR") or tempfile.gettempdir())
    gpus = survey()
    return {
        "host": socket.gethostname(),
        "platform": sys.platform,
        "system": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "tensorflow": _tensorflow(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "shm_free": _free(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
        "folder": {"path": str(folder), "free": _free(folder), "problem": write_problem(folder)},
        "temporary": {"path": str(temporary), "free": _free(temporary), "problem": write_problem(temporary)},
        "limits": _limits(),
        "variables": {name: _shown(name, environ[name]) for name in _VARIABLES if environ.get(name)},
        "libhdfs": _libhdfs(environ),
        "gpus": {"gpus": [asdict(gpu) for gpu in gpus.gpus], "problem": gpus.problem},
        "gpu_driver": _gpu_driver(),
        "time": time.time(),
    }


def write_problem(folder: Path) -> str:
    """Why no file can be made in a folder; empty when one can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".tfos-env-check-") as file:
            file.write(b"x")
            file.flush()
    except OSError as exc:
        return f"{exc.strerror or exc}"
    return ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tensorflow() -> dict[str, str] | None:
    found = ((name, _version(name)) for name in TENSORFLOW_DISTRIBUTIONS)
    return next(({"distribution": name, "version": version} for name, version in found if version), None)


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _limits() -> dict[str, int | None]:
    """Soft limits; -1 is none."""
    try:
        import resource
    except ImportError:  # no such limits on this platform
        return {}
    names = {"open_files": "RLIMIT_NOFILE", "processes": "RLIMIT_NPROC", "address_space": "RLIMIT_AS"}
    kinds = {name: getattr(resource, limit, None) for name, limit in names.items()}
    return {name: None if kind is None else int(resource.getrlimit(kind)[0]) for name, kind in kinds.items()}


def _shown(name: str, value: str) -> str:
    return "(set)" if name in _NOT_SHOWN else value[:200]


def _libhdfs(environ: Mapping[str, str]) -> str:
    """Hadoop's C library where clients that use it look for it."""
    places = [environ.get("ARROW_LIBHDFS_DIR", "")]
    if home := environ.get("HADOOP_HOME"):
        places.append(f"{home}/lib/native")
    places += environ.get("LD_LIBRARY_PATH", "").split(":")
    return next((f"{place}/libhdfs.so" for place in places if place and Path(place, "libhdfs.so").exists()), "")


def _gpu_driver() -> str:
    try:
        first = _DRIVER_FILE.read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""
    words = first.split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")
