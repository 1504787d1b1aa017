"""A SparkContext in the tests' own process; pyspark is imported when one is started."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from testbed.processes import descendants, kill_all, wait_until_gone
from testbed.spark_home import SMALL_JAVA

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("SETTINGS", "start_context")

# What submission sets.
SETTINGS = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    "spark.locality.wait": "0s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
    "spark.executor.extraJavaOptions": SMALL_JAVA,
}


@contextlib.contextmanager
def start_context(master: str, conf: Mapping[str, str] | None = None) -> Iterator[SparkContext]:
    """A SparkContext whose JVM is gone afterwards, so that the next one reads its settings anew."""
    from pyspark import SparkConf, SparkContext

    assert SparkContext._gateway is None, "another SparkContext of this process is still there"
    settings = SETTINGS | {"spark.pyspark.python": sys.executable} | dict(conf or {})
    before = {process.identity for process in descendants(os.getpid())}
    context = SparkContext(master, "tests", conf=SparkConf().setAll(list(settings.items())))
    context.setLogLevel("WARN")
    try:
        yield context
    finally:
        context.stop()
        _end_gateway()
        new = tuple(process for process in descendants(os.getpid()) if process.identity not in before)
        kill_all(wait_until_gone(new, 10))


def _end_gateway() -> None:
    """The JVM ends when its standard input does; pyspark itself keeps it until the interpreter exits."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)
