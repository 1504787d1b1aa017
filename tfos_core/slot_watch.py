"""Notices a job of the same application that waits for a core while nodes hold all of them."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tfos_core.events import EventSink, Warned

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ("SlotWatch",)

logger = logging.getLogger(__name__)

#: A stage that has had no running task for so long is told, in seconds.
WAITING_S = 30.0
#: How often Spark is asked, in seconds. Its listeners can not be written in Python, and asking costs a few calls into the JVM.
LOOK_S = 10.0


class SlotWatch:
    """Looks from a thread of its own until it is stopped or has warned; for clusters whose nodes all keep their Spark tasks."""

    def __init__(self, sc: SparkContext, emit: EventSink) -> None:
        self._sc = sc
        self._emit = emit
        self._since: dict[int, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfos-slot-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; idempotent."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                waiting = self._waiting_stages()
            except Exception as exc:  # noqa: BLE001 - the context may be gone, and then nobody waits
                logger.debug("Spark did not say which stages wait: %s", exc)
                return
            now = time.monotonic()
            self._since = {stage: self._since.get(stage, now) for stage in waiting}
            for stage, since in self._since.items():
                if now - since >= WAITING_S and not self._stopped.is_set():
                    self._warn(stage, waiting[stage], now - since)
                    return

    def _waiting_stages(self) -> dict[int, str]:
        """Stages that were submitted and have no task running, with their names.

        Spark's public status tracker is not asked: what it says of running tasks may be old until the next heartbeat.
        """
        stages = self._sc._jsc.sc().statusStore().activeStages()
        found = {}
        for position in range(stages.size()):
            stage = stages.apply(position)
            if stage.numActiveTasks() == 0 and stage.numCompleteTasks() < stage.numTasks():
                found[int(stage.stageId())] = str(stage.name())
        return found

    def _warn(self, stage: int, name: str, seconds: float) -> None:
        self._emit(
            Warned(
                id="nodes-hold-all-slots",
                message=f"stage {stage} of this application ({name}) has waited for {seconds:.0f} s for a free core, but the nodes "
                "keep those of their executors until they end",
                hint="Run such jobs before TFCluster.run or after shutdown(), or give the application more executors than nodes.",
            )
        )
