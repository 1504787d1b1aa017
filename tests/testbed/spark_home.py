"""The Spark of the pyspark package, in a folder that may be written to."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ("SMALL_JAVA", "find_spark", "link_spark_home")

#: Several JVMs share two cores, and most of what they do in a test is to start.
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def find_spark() -> Path:
    """The folder of the pyspark package, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed"
    return Path(spec.origin).parent


def link_spark_home(folder: Path) -> Path:
    """Fill `folder` with links to all that a SPARK_HOME has, except `work` and `logs`, which Spark writes to."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in find_spark().iterdir():
        if entry.name not in ("work", "logs", "conf"):
            (folder / entry.name).symlink_to(entry)
    return folder
