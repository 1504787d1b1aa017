"""Which versions of what a machine has, without importing any of it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterable, Mapping

from tfos_cli import __version__
from tfos_cli.submit.java import check_java
from tfos_cli.submit.spark_home import locate_spark
from tfos_core.errors import EnvironmentCheckError

__all__ = ("PACKAGES", "describe_versions", "package_versions")

#: What decides whether a job runs, by the names that pip knows.
PACKAGES = (
    "tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf_keras", "keras", "tensorboard", "pyspark", "py4j", "numpy", "pandas",
    "pyarrow", "protobuf", "grpcio", "click", "rich", "pydantic", "PyYAML", "psutil",
)  # fmt: skip


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe_versions(environ: Mapping[str, str]) -> dict[str, object]:
    """This machine: tfos, Python, system, Spark, Java, packages."""
    described: dict[str, object] = {
        "tfos": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "packages": package_versions(),
    }
    try:
        spark = locate_spark(environ)
        described["spark"] = {"version": spark.version, "path": str(spark.path), "source": spark.source}
        java = check_java(environ, spark)
        described["java"] = {"version": java.version, "path": str(java.path)}
    except EnvironmentCheckError as exc:
        described["problem"] = exc.message
    return described
