"""What a killed supervisor has left on its host is removed by tasks that are sent there: nobody else is there to do it."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tfos_core.feed import rendezvous
from tfos_core.processes import kill_orphans
from tfos_core.scratch import sweep_scratch
from tfos_core.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("tidy_executors",)

logger = logging.getLogger(__name__)


def tidy_executors(sc: SparkContext, executors: int, *, timeout: float = 2.0) -> None:
    """Run a task on each executor that removes what dead supervisors have left on its host, processes and folders. Raises nothing.

    Args:
        executors: how many there are; Spark hands tasks out one to each, as long as each has a free core.
        timeout: seconds until the tasks are cancelled; an executor that is cut off takes its tasks and does not answer.
    """
    from pyspark import InheritableThread

    # Another cluster of this driver may be tidying up too.
    tag = f"tfos-tidy-{secrets.token_hex(8)}"
    thread = InheritableThread(target=_run, args=(sc, executors, tag), name="tfos-tidy", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        try:
            sc.cancelJobsWithTag(tag)
        except Exception as exc:  # noqa: BLE001 - the context may be gone, and with it the tasks
            logger.info("the tasks that tidy up could not be cancelled: %s", exc)


def _run(sc: SparkContext, executors: int, tag: str) -> None:
    try:
        sc.addJobTag(tag)
        sc.parallelize(range(executors), executors).foreachPartition(_tidy)
    except Exception as exc:  # noqa: BLE001 - what is left then is removed by the next job on that host
        logger.info("the executors were not tidied up: %s", reason_of(exc))


def _tidy(_: Iterable[Any]) -> None:
    kill_orphans()
    rendezvous.sweep(os.environ)
    sweep_scratch(os.environ)
