"""The checks of the machine that runs `tfos`: what only it needs (Java, Spark, a place for run records), and what all need."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfos_cli import __version__
from tfos_cli.envcheck.check import Check, Status
from tfos_cli.envcheck.rules import Needs, machine_checks
from tfos_cli.envcheck.versions import version_key
from tfos_cli.runs import HOME_VARIABLE, RunStore
from tfos_cli.submit.java import Java, check_java
from tfos_cli.submit.spark_home import SparkHome, locate_spark
from tfos_core.errors import EnvironmentCheckError
from tfos_core.probe.machine import machine_facts, write_problem

__all__ = ("local_checks", "submission_checks")

_REUSE = "spark.python.worker.reuse"
#: The newest Java that Spark 3.5 was made for.
_JAVA_OF_3_5 = 17


def local_checks(environ: Mapping[str, str]) -> list[Check]:
    """Everything that jobs on this machine need."""
    return [*submission_checks(environ), *machine_checks(machine_facts(environ), Needs())]


def submission_checks(environ: Mapping[str, str]) -> list[Check]:
    """What submitting a job needs."""
    found = [Check(id="tfos", status=Status.OK, found=f"tfos {__version__} in {Path(__file__).parents[1]}"), _home(environ)]
    try:
        spark = locate_spark(environ)
    except EnvironmentCheckError as exc:
        return [*found, Check(id="spark", status=Status.FAILURE, found=exc.message, fix=exc.hint or "")]
    found += [_spark(spark), _java(environ, spark), *_worker_reuse(environ, spark)]
    return found


def _spark(spark: SparkHome) -> Check:
    try:
        package = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        package = ""
    if package and version_key(package)[:2] != version_key(spark.version)[:2]:
        found = f"SPARK_HOME is Spark {spark.version}, and the package pyspark beside tfos is {package}"
        fix = f"pip install 'pyspark=={'.'.join(spark.version.split('.')[:2])}.*', or unset SPARK_HOME."
        return Check(id="spark", status=Status.FAILURE, found=found, fix=fix)
    return Check(id="spark", status=Status.OK, found=f"Spark {spark.version} at {spark.path} ({spark.source})")


def _java(environ: Mapping[str, str], spark: SparkHome) -> Check:
    try:
        java: Java = check_java(environ, spark)
    except EnvironmentCheckError as exc:
        return Check(id="java", status=Status.FAILURE, found=exc.message, fix=exc.hint or "")
    found = f"Java {java.version} at {java.path}"
    if spark.release < (4, 0) and java.version > _JAVA_OF_3_5:
        fix = f"Set JAVA_HOME to a Java {_JAVA_OF_3_5}."
        return Check(id="java", status=Status.WARNING, found=f"{found} is newer than Spark {spark.version} was made for", fix=fix)
    return Check(id="java", status=Status.OK, found=found)


def _home(environ: Mapping[str, str]) -> Check:
    folder = RunStore.of_environment(environ).folder.parent
    existing = folder
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    problem = write_problem(existing) if existing.is_dir() else "it is no folder"
    if problem:
        found = f"records of runs go to {folder}, and {existing} can not be written: {problem}"
        return Check(id="home", status=Status.FAILURE, found=found, fix=f"Set {HOME_VARIABLE} to a folder that you can write.")
    return Check(id="home", status=Status.OK, found=f"records of runs go to {folder}")


def _worker_reuse(environ: Mapping[str, str], spark: SparkHome) -> Iterator[Check]:
    """Nodes do not live in Spark's Python workers, so nothing breaks; every feed task pays for a new Python."""
    defaults = Path(environ.get("SPARK_CONF_DIR") or spark.path / "conf") / "spark-defaults.conf"
    try:
        text = defaults.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    values = re.findall(rf"^\s*{re.escape(_REUSE)}[\s=:]+(\S+)", text, re.MULTILINE)
    if values and values[-1].lower() == "false":
        fix = f"Take the line out, or use --conf {_REUSE}=true: every task that feeds rows starts a Python of its own."
        yield Check(id="worker-reuse", status=Status.WARNING, found=f"{_REUSE} is false in {defaults}", fix=fix)
