"""The job of `tfos env-check SPEC`: probes driver and executors, and leaves what was found in the run record."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tfos_core.jobplan import ProbePlan
from tfos_core.shim.work import Work

__all__ = ("PROBE_FILE", "run")

#: In the folder of the run.
PROBE_FILE = "probe.json"


def run(work: Work, plan: ProbePlan) -> None:
    """Probe, and write the result.

    Raises:
        TfosError: the application can carry no nodes at all.
    """
    from tfos_core.probe.run import probe

    begun = time.monotonic()
    result = probe(
        work.spark.sparkContext,
        plan,
        work.plan.num_nodes,
        timeout=work.plan.reservation_timeout,
        emit=work.emit,
        cancellation=work.cancellation,
        gpus=work.plan.gpus,
        gpu_source=work.plan.gpu_source,
        environment=work.plan.environment,
    )
    work.progress.mark("probe_s", begun)
    path = Path(work.plan.run_folder) / PROBE_FILE
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(result.to_dict(), file, indent=1)
    temporary.replace(path)
