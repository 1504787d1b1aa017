"""Submits the probe of a cluster, follows it, and reads what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfos_cli import submission
from tfos_cli.envcheck.check import Check, Status, worst
from tfos_cli.envcheck.cluster import cluster_report
from tfos_cli.envcheck.differences import labels_of
from tfos_cli.envcheck.local import submission_checks
from tfos_cli.envcheck.result import CheckResult
from tfos_cli.envcheck.rules import Needs
from tfos_cli.envcheck.submit import probe_job, with_probe
from tfos_cli.exit_codes import ExitCode
from tfos_cli.runs import RunStore
from tfos_cli.ui.console import Console, Verbosity
from tfos_cli.ui.progress import PlainLines, Renderer, Silent
from tfos_core.shim.probing import PROBE_FILE

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("check_cluster",)


def check_cluster(console: Console, resolved: ResolvedSpec, environ: Mapping[str, str]) -> CheckResult | ExitCode:
    """The result, or the exit code of a probe that was interrupted.

    Raises:
        ConfigError: the spec asks for what can not be submitted.
    """
    here = tuple(submission_checks(environ))
    if worst(here) is Status.FAILURE:
        # nothing can be submitted from here
        return CheckResult(checks=here, spec=str(resolved.path))
    job = probe_job(resolved)
    submitted = submission.submit(job.resolved, RunStore.of_environment(environ), environ, detached=False)
    run = submitted.run
    run.plan_path.write_text(with_probe(submitted.prepared.plan, job.plan).to_json(), encoding="utf-8")
    console.note(f"run {run.id}")
    console.note(f"probing the driver and {resolved.spec.num_executors} executors")
    loud = console.verbosity >= Verbosity.VERBOSE and not console.json
    renderer: Renderer = PlainLines(console) if loud else Silent()
    status = submission.follow_here(submitted, lambda: renderer)
    if status.exit_code == ExitCode.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if status.exit_code != ExitCode.SUCCESS:
        failed = Check(id="job", status=Status.FAILURE, found=status.error, fix=status.hint or f"tfos report {run.id}")
        return CheckResult(checks=(failed, *here), spec=str(resolved.path), run_id=run.id)
    probe = json.loads((run.folder / PROBE_FILE).read_text(encoding="utf-8"))
    needs = Needs(gpus=resolved.spec.gpus.per_node, legacy_keras=resolved.keras.keras == "legacy")
    report = cluster_report(probe, needs)
    machines = {"driver": probe["driver"]} | dict(zip(labels_of(probe["executors"]), probe["executors"], strict=True))
    return CheckResult(
        checks=(*here, *report.checks),
        differences=report.differences,
        spec=str(resolved.path),
        run_id=run.id,
        machines=machines,
    )
