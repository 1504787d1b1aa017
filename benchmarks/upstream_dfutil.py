"""TFRecords as TensorFlowOnSpark 2.2.5 writes and reads them; runs in the other environment, see upstream.py.

Its `dfutil` needs the Hadoop formats of the TensorFlow project, a jar of Maven Central.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ("JAR", "hadoop_jar", "serve")

JAR = "org.tensorflow:tensorflow-hadoop:1.15.0:jar"
FETCH_S = 300


def hadoop_jar(folder: Path) -> Path | None:
    """The jar in `folder`, fetched by Maven when it is not there; None where it can not be had."""
    there = sorted(folder.glob("tensorflow-hadoop-*.jar"))
    maven = shutil.which("mvn")
    if not there and maven is not None:
        command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={JAR}", f"-DoutputDirectory={folder}"]
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(command, cwd=scratch, capture_output=True, timeout=FETCH_S, check=False)
        there = sorted(folder.glob("tensorflow-hadoop-*.jar"))
    return there[0] if there else None


def serve(spark: Any, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of one write and one read for each line of stdin; the first answer says that it is ready."""
    from tensorflowonspark import dfutil  # type: ignore[import-not-found]
    from tfrecords import TYPES, make_batch

    df = spark.createDataFrame(make_batch(options.rows).to_pandas(), TYPES).repartition(options.partitions).cache()
    df.count()
    with tempfile.TemporaryDirectory(prefix="dfutil-") as scratch:
        target = f"{scratch}/records"
        yield {"ready": True}
        for _ in sys.stdin:
            shutil.rmtree(target, ignore_errors=True)
            started = time.perf_counter()
            dfutil.saveAsTFRecords(df, target)
            written = time.perf_counter()
            dfutil.loadTFRecords(spark.sparkContext, target).write.format("noop").mode("overwrite").save()
            yield {"write": written - started, "read": time.perf_counter() - written}
    spark.stop()
