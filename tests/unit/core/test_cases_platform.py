"""Platforms and packages that the system of 2022 did not survive."""

from __future__ import annotations

import subprocess
import sys

# setuptools dropped pkg_resources in release 81; tensorflow-cpu and tensorflow-macos are the same module under another name.
WITHOUT = """
import importlib.metadata, pkgutil, sys
sys.modules["pkg_resources"] = None
real = importlib.metadata.distribution
def distribution(name):
    if name == "tensorflow":
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.distribution = distribution
import tfos_core, tfos_cli.main
for package in (tfos_core,):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            __import__(module.name)
        except ModuleNotFoundError as exc:
            if exc.name != "pyspark.sql.datasource":  # Spark before 4.0 has no such thing
                raise
for name in tfos_core.__all__:
    getattr(tfos_core, name)
print("imported")
"""


def test_everything_imports_without_pkg_resources_and_under_any_name_of_tensorflow() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert done.stdout == "imported\n", done.stderr
