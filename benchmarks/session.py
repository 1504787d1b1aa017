"""The Spark that both sides run on."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from usage import GROUP

__all__ = ("MASTER", "SETTINGS", "own_workers", "start_spark")

HERE = Path(__file__).resolve().parent
MASTER = "local-cluster[2,1,2048]"
SETTINGS = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    "spark.locality.wait": "0s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}


@contextlib.contextmanager
def start_spark(more: Mapping[str, str] | None = None, *, master: str = MASTER) -> Iterator[Any]:
    """A SparkSession on two executors, in a folder of its own; nothing of it stays in the pyspark package. `more` are settings."""
    from importlib.util import find_spec

    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder) / "spark"
        home.mkdir()
        # local-cluster writes $SPARK_HOME/work.
        for entry in Path(spec.origin).parent.iterdir():
            if entry.name not in ("work", "logs"):
                (home / entry.name).symlink_to(entry)
        os.environ |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(Path(folder) / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")])),
            "TMPDIR": folder,
        }
        # An executor takes all memory of its Worker, in MiB.
        memory = {"spark.executor.memory": master.rpartition(",")[2].rstrip("]") + "m"}
        conf = SparkConf().setAll(list((SETTINGS | memory | dict(more or {})).items()))
        spark = SparkSession.builder.config(conf=conf).master(master).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def own_workers(context: Any, group: str = "alone", more: Mapping[str, str] | None = None) -> Iterator[None]:
    """What is started inside runs in Python workers of this group alone, and of no feed: Spark has some for every environment.

    `more` are further variables of theirs.
    """
    added = {GROUP: group, **(more or {})}
    context.environment.update(added)
    try:
        yield
    finally:
        for name in added:
            del context.environment[name]
