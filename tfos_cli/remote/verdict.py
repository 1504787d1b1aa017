"""What it means that an application ended without its driver saying why. Pure."""

from __future__ import annotations

import re

from tfos_cli.remote.applications import ApplicationReport
from tfos_cli.submit.errors import SubmitError
from tfos_core.errors import InterruptedRunError, TfosError
from tfos_core.shim.errors import DriverLostError

__all__ = ("error_of",)

#: YARN's exit codes -103 and -104, its sentences, and the kernel's killer on Kubernetes.
_MEMORY = re.compile(r"beyond the '?(physical|virtual)|exitCode: -10[34]\b|OOMKilled|physical memory", re.IGNORECASE)
_MEMORY_HINT = (
    "Raise spark.driver_memory (the heap), or spark.conf.spark.driver.memoryOverhead (what is beside it: Python, and nodes that "
    "run on the driver)."
)


def error_of(
    application: str, report: ApplicationReport, *, why: str, driver_started: bool, stop_reason: str = ""
) -> TfosError | None:
    """The error that ended a run; None when the application goes on or nothing is wrong with it.

    Args:
        application: its id.
        why: the manager's reason, one sentence.
        driver_started: whether the driver was heard.
        stop_reason: why the user stopped it, empty when nobody did.
    """
    if not report.is_over:
        return None
    because = f": {why}" if why else ""
    if stop_reason:
        return InterruptedRunError(f"the run was stopped by {stop_reason}")
    if report.outcome == "KILLED":
        return InterruptedRunError(f"application {application} was killed{because}", "Somebody, or the queue, has ended it.")
    if _MEMORY.search(report.diagnostics):
        return DriverLostError(f"the driver's container was killed for memory{because}", _MEMORY_HINT)
    if report.outcome == "FAILED" and not driver_started:
        return SubmitError(
            f"application {application} ended before its driver had started{because}",
            f"Its Python has to be there, with NumPy and pyarrow. Read the log of its container: '{_log_command(application)}'.",
        )
    return DriverLostError(
        f"application {application} ended ({report.outcome}) and its driver did not say how the job went{because}",
        f"Read the log of its container ('{_log_command(application)}'), and submit the run again.",
    )


def _log_command(application: str) -> str:
    """How to read it; `NAMESPACE:POD` is an application of Kubernetes."""
    namespace, separator, pod = application.partition(":")
    return f"kubectl logs -n {namespace} {pod}" if separator else f"yarn logs -applicationId {application}"
