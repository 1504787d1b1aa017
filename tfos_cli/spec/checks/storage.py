"""Paths with a scheme that Python reads or writes, not Spark: their packages have to be there."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from tfos_cli.spec.checks.finding import Case, Findings

__all__ = ("RULES", "missing_package")

#: Scheme -> module of fsspec's file system, and what brings it.
_PACKAGES = {
    "hdfs": ("hdfs_native", "tfos[hdfs]"),
    "viewfs": ("hdfs_native", "tfos[hdfs]"),
    "s3": ("s3fs", "s3fs"),
    "s3a": ("s3fs", "s3fs"),
    "gs": ("gcsfs", "gcsfs"),
    "abfs": ("adlfs", "adlfs"),
    "abfss": ("adlfs", "adlfs"),
}


def packages_are_there(case: Case) -> Findings:
    """What is missing here is mostly missing on executors too; an environment that travels with the job may have it."""
    if case.spec.environment.pack not in ("none", "venv"):
        return
    for field, path in _python_paths(case):
        module, package = missing_package(path)
        if module:
            message = f"{path} needs the Python module {module} on the driver and the executors, and it is not installed here"
            yield case.warning("storage-package", field, message, f"pip install '{package}', here and there.")


def missing_package(path: str) -> tuple[str, str]:
    """The Python module that a path needs and this machine lacks, and what installs it; empty texts when nothing is missing."""
    scheme, separator, _ = path.partition("://")
    module, package = _PACKAGES.get(scheme.lower(), ("", "")) if separator else ("", "")
    return (module, package) if module and find_spec(module) is None else ("", "")


def _python_paths(case: Case) -> Iterator[tuple[str, str]]:
    spec = case.spec
    reads = spec.input_mode == "tensorflow" or case.resolved.data_format == "tfrecord"
    if spec.data is not None and spec.data.path is not None and reads:
        yield "data.path", spec.data.path
    log_dir = spec.tensorboard.log_dir
    # TensorFlow itself knows gs://.
    if log_dir is not None and not log_dir.startswith("gs:"):
        yield "tensorboard.log_dir", log_dir


RULES = (packages_are_there,)
