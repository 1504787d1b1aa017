"""Why an executor is gone, in the words of the cluster manager: a node that is killed with its container can not say it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

__all__ = ("is_memory", "loss_reason")

logger = logging.getLogger(__name__)

#: The manager tells Spark's driver with its next heartbeat, after the node's connection has broken.
WAIT_S = 8.0
_LOOK_EVERY_S = 0.25
#: Managers that kill containers, and say why. Elsewhere an executor's end has no better words than the node's own.
_MANAGERS = ("yarn", "k8s")
_MEMORY = re.compile(r"memory limit|OOMKilled|memoryOverhead", re.IGNORECASE)


def is_memory(reason: str) -> bool:
    """Whether a container was killed because it took too much memory."""
    return _MEMORY.search(reason) is not None


def loss_reason(sc: Any, host: str, *, wait_s: float = WAIT_S) -> str:
    """Spark's word on an executor that it has removed; one that was killed for memory first, then one of that host.

    Args:
        host: of the lost node.
        wait_s: how long to wait until Spark knows; not at all when the manager is none that kills containers.

    Returns:
        A sentence, or an empty text when Spark knows nothing.
    """
    try:
        if not str(sc.master).startswith(_MANAGERS):
            return ""
        until = time.monotonic() + wait_s
        while True:
            found = list(_removed(sc))
            best = next((reason for _, reason in found if is_memory(reason)), None)
            best = best or next((reason for where, reason in found if where == host), None)
            if best is not None or time.monotonic() > until:
                return best or ""
            time.sleep(_LOOK_EVERY_S)  # Spark tells listeners of the JVM only
    except Exception:
        # The JVM may be gone as well: then this is no news.
        logger.debug("Spark was not asked why an executor is gone", exc_info=True)
        return ""


def _removed(sc: Any) -> Iterator[tuple[str, str]]:
    """Host and reason of every executor that Spark has removed."""
    executors = sc._jsc.sc().statusStore().executorList(False)
    for number in range(executors.size()):
        executor = executors.apply(number)
        reason = executor.removeReason()
        if not executor.isActive() and reason.isDefined():
            yield str(executor.hostPort()).rpartition(":")[0], " ".join(str(reason.get()).split())
