"""What `tfos train` and `tfos infer` do with a spec: check it, show it or submit it, follow it, and end with its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfos_cli.exit_codes import ExitCode
from tfos_cli.submit.java import JavaQuestion
from tfos_cli.ui.console import Console
from tfos_core.errors import ConfigError

if TYPE_CHECKING:
    from tfos_cli.runs import Run
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.spec.rules import Finding
    from tfos_cli.ui.progress import Renderer

__all__ = ("run_job",)


def run_job(
    console: Console,
    load: Callable[[], ResolvedSpec],
    *,
    strict: bool,
    dry_run: bool,
    detach: bool,
    no_progress: bool,
) -> int:
    """Run the job of a spec, and return its exit code.

    Args:
        load: gives the spec. Java is asked for its version before, because that takes as long as all that comes first.

    Raises:
        ConfigError: the spec can not work, or with `strict` there is a warning about it.
        TfosError: it could not be submitted.
    """
    if dry_run:
        resolved, warnings = _sound(load, strict=strict)
        _warn(console, warnings)
        return _dry_run(console, resolved)
    with JavaQuestion(os.environ) as java_question:
        resolved, warnings = _sound(load, strict=strict)
        return _run(console, resolved, warnings, java_question, detach=detach, no_progress=no_progress)


def _sound(load: Callable[[], ResolvedSpec], *, strict: bool) -> tuple[ResolvedSpec, list[Finding]]:
    """The spec that can work, and the warnings about it."""
    resolved = load()
    from tfos_cli.spec.rules import check

    return resolved, _require_sound(check(resolved), strict=strict)


def _run(
    console: Console,
    resolved: ResolvedSpec,
    warnings: Sequence[Finding],
    java_question: JavaQuestion,
    *,
    detach: bool,
    no_progress: bool,
) -> int:
    from tfos_cli import submission
    from tfos_cli.runs import RunStore

    notes = _Notes(console, shows_id=not detach and not console.json)
    submitted = submission.submit(
        resolved,
        RunStore.of_environment(os.environ),
        os.environ,
        detached=detach,
        java_question=java_question,
        tell=notes.tell,
    )
    run = submitted.run
    if detach:
        submission.follow_detached(submitted)
        console.result(run.events_path.read_text(encoding="utf-8").splitlines()[0] if console.json else run.id)
        _warn(console, warnings)
        console.note(f"tfos status {run.id}\ntfos logs {run.id} --follow\ntfos cancel {run.id}")
        return ExitCode.SUCCESS
    notes.show_id(run)
    _warn(console, warnings)
    for name in submitted.prepared.left_out:
        console.warning(
            f"the neighbour {name!r} of the program did not travel with it: Python or TensorFlow has a module of that name"
        )
    status = submission.follow_here(submitted, lambda: _choose_renderer(console, no_progress=no_progress))
    return int(status.exit_code if status.exit_code is not None else ExitCode.INTERNAL)


def _choose_renderer(console: Console, *, no_progress: bool) -> Renderer:
    from tfos_cli.ui.progress import choose_renderer

    return choose_renderer(console, no_progress=no_progress)


class _Notes:
    """What is said on stderr before the run's own lines: its id first, so that it can be found whatever happens next."""

    def __init__(self, console: Console, *, shows_id: bool) -> None:
        self._console = console
        self._shows_id = shows_id

    def show_id(self, run: Run) -> None:
        """Say the id, once."""
        if self._shows_id:
            self._console.note(f"run {run.id}")
        self._shows_id = False

    def tell(self, run: Run, text: str) -> None:
        """Say what takes long."""
        self.show_id(run)
        self._console.note(text)


def _dry_run(console: Console, resolved: ResolvedSpec) -> int:
    from tfos_cli.runs import RunStore
    from tfos_cli.submit.dry_run import DryRun
    from tfos_cli.submit.spark_home import locate_spark

    store = RunStore.of_environment(os.environ)
    run_id = f"{resolved.spec.name}-DATE-TIME-ID"
    plan = DryRun.of(
        resolved,
        run_id=run_id,
        run_folder=store.folder / run_id,
        spark=locate_spark(os.environ),
        python=sys.executable,
        environ=os.environ,
    )
    if console.json:
        console.result_json(plan.to_dict())
    else:
        console.result(plan.text().rstrip("\n"))
    return ExitCode.SUCCESS


def _require_sound(findings: Sequence[Finding], *, strict: bool) -> list[Finding]:
    """The warnings; errors, and with `--strict` warnings too, end here."""
    from tfos_cli.spec.rules import Level

    wrong = [finding for finding in findings if strict or finding.level is Level.ERROR]
    if not wrong:
        return list(findings)
    first = wrong[0]
    sentences = [f"{finding.message} ({finding.field}, {finding.source})" for finding in wrong]
    message = (
        sentences[0] if len(wrong) == 1 else f"the spec has {len(wrong)} mistakes:\n" + "\n".join(f"  - {s}" for s in sentences)
    )
    fix = first.fix if len(wrong) == 1 else "\n".join(f"- {finding.fix}" for finding in wrong)
    raise ConfigError(message, fix)


def _warn(console: Console, warnings: Sequence[Finding]) -> None:
    for finding in warnings:
        console.warning(f"{finding.message} ({finding.field}, {finding.source})", finding.fix)
