"""Which Spark starts the job: found on this machine without importing pyspark."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfos_core.errors import EnvironmentCheckError

__all__ = ("SparkHome", "link_private_home", "locate_spark")

OLDEST_SPARK = (3, 5)
#: Spark writes these into its own folder; a private home has empty ones.
WRITTEN_BY_SPARK = ("work", "logs")

_CORE_JAR = re.compile(r"spark-core_[\d.]+-(\d+)\.(\d+)\.([^/]*)\.jar\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkHome:
    """A Spark installation; `source` says for people how it was found."""

    path: Path
    version: str
    source: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def locate_spark(environ: Mapping[str, str]) -> SparkHome:
    """The Spark of `SPARK_HOME`, else the pyspark package of the running interpreter.

    `bin/spark-submit` of a virtual environment that is not activated does not find Spark by itself, so the folder is always
    looked up here and given to it.

    Raises:
        EnvironmentCheckError: there is none, or it is older than 3.5.
    """
    configured = environ.get("SPARK_HOME")
    if configured:
        return _inspect(Path(configured).absolute(), "SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")  # finds a top-level package without executing it
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise EnvironmentCheckError(
            "no Spark was found: SPARK_HOME is not set, and the Python that runs tfos has no package pyspark",
            "Install it with 'pip install pyspark', or set SPARK_HOME to an unpacked Spark distribution.",
        )
    return _inspect(Path(next(iter(places))), "the Python package pyspark")


def link_private_home(spark: SparkHome, folder: Path) -> Path:
    """Fill a new folder with links to everything in a Spark home except what Spark writes, and return it.

    `local-cluster` writes the folders of its executors into `$SPARK_HOME/work`, which is inside site-packages, may be read-only,
    and would keep every job's jars and logs for ever.
    """
    folder.mkdir(parents=True, mode=0o700)
    for entry in sorted(spark.path.iterdir()):
        if entry.name not in (*WRITTEN_BY_SPARK, "__pycache__"):
            (folder / entry.name).symlink_to(entry)
    for name in WRITTEN_BY_SPARK:
        (folder / name).mkdir()
    return folder


def _inspect(path: Path, source: str) -> SparkHome:
    jars = path / "jars"
    matches = [_CORE_JAR.search(jar.name) for jar in jars.glob("spark-core_*.jar")]
    found = next((match for match in matches if match), None)
    if found is None or not (path / "bin" / "spark-submit").is_file():
        raise EnvironmentCheckError(
            f"{path} ({source}) is no Spark installation: it lacks bin/spark-submit or jars/spark-core_*.jar",
            "Set SPARK_HOME to an unpacked Spark distribution, or unset it and run 'pip install pyspark'.",
        )
    home = SparkHome(path=path, version=".".join(found.groups()), source=source)
    if home.release < OLDEST_SPARK:
        raise EnvironmentCheckError(
            f"Spark {home.version} at {path} ({source}) is too old: tfos needs {'.'.join(map(str, OLDEST_SPARK))} or newer",
            "Set SPARK_HOME to a newer Spark.",
        )
    return home
