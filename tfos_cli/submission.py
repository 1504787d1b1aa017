"""From a resolved spec to a followed run: the record, the files, the follower here or in the background."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tfos_cli.follower import Follower
from tfos_cli.launch import Launch
from tfos_cli.runs import Run, RunStore
from tfos_cli.spec.masters import MasterKind, master_kind
from tfos_cli.submit.errors import SubmitError
from tfos_cli.submit.preparation import Preparation, prepare
from tfos_cli.submit.resolved_text import resolved_yaml
from tfos_core.errors import ConfigError
from tfos_core.exit_codes import ExitCode
from tfos_core.private_files import write_private
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.scratch import SCRATCH_NAMES
from tfos_core.shim.status import RunState, RunStatus

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.submit.java import JavaQuestion
    from tfos_cli.ui.progress import Renderer

__all__ = ("Submission", "follow_detached", "follow_here", "start_timeout_s", "submit", "sweep")

#: From the start of spark-submit to a SparkContext. A Master that answers does so in seconds; a queue of YARN may take its time.
_STANDALONE_START_S = 40.0
_LOCAL_START_S = 120.0
_MANAGED_START_S = 60.0
#: More of it when Spark has to download packages first.
_PACKAGES_S = 300.0
#: ... and when archives travel with the job: in client mode Spark unpacks them on the driver too, on YARN it uploads them first.
_ARCHIVES_S = 300.0

_DETACH_TIMEOUT_S = 30


class Submission:
    """A run whose files are written and whose spark-submit has not started."""

    def __init__(self, run: Run, prepared: Preparation, launch: Launch) -> None:
        self.run = run
        self.prepared = prepared
        self.launch = launch


def submit(
    resolved: ResolvedSpec,
    store: RunStore,
    environ: Mapping[str, str],
    *,
    detached: bool,
    java_question: JavaQuestion | None = None,
    tell: Callable[[Run, str], object] = lambda _run, _text: None,
) -> Submission:
    """Make the record of a run and everything that spark-submit needs.

    Args:
        java_question: see `prepare`.
        tell: gets the run and a sentence before something that takes long.

    Raises:
        EnvironmentCheckError: Java or Spark is missing.
        ConfigError: the spec asks for what can not be submitted, or the record can not be written.
    """
    spec = resolved.spec
    sweep(store)
    run = store.create(spec.name, master=_master_shown(resolved))
    try:
        prepared = prepare(
            resolved,
            run_id=run.id,
            run_folder=run.folder,
            plan_path=run.plan_path,
            channel=run.channel_path,
            environ=environ,
            detached=detached,
            java_question=java_question,
            tell=functools.partial(tell, run),
        )
        write_private(run.spec_path, resolved_yaml(resolved))
        write_private(run.command_path, json.dumps(prepared.command.to_dict(), indent=1) + "\n")
    except BaseException:
        # nothing was submitted, so there is nothing to remember
        shutil.rmtree(run.folder, ignore_errors=True)
        raise
    scratch = [prepared.scratch.folder, run.folder / "ship"]
    if prepared.command.properties_file is not None:
        scratch.append(prepared.command.properties_file)
    launch = Launch(
        argv=prepared.command.argv,
        environment={**environ, **prepared.command.environment},
        cwd=str(prepared.command.cwd),
        start_timeout_s=start_timeout_s(resolved),
        grace_s=float(spec.grace_secs),
        secrets=tuple(spec.environment.secrets),
        scratch=tuple(map(str, scratch)),
    )
    return Submission(run, prepared, launch)


def sweep(store: RunStore) -> None:
    """Finish the records of runs whose follower and driver were both killed, and remove what they left behind."""
    for run in store.all():
        if not any((run.folder / name).exists() for name in SCRATCH_NAMES):
            continue
        try:
            status = run.status()
        except ConfigError:
            continue  # damaged: it may be anything, so it is left alone
        if status.record and not run.is_followed(status):
            _remove_scratch(run)  # the run itself goes on on the cluster, or its record there says how it ended
        if not run.is_abandoned(status):
            continue
        with RecordWriter(run.folder, Redactor(())) as record:
            record.update(
                state=RunState.FINISHED,
                status="failed",
                exit_code=int(ExitCode.INFRASTRUCTURE),
                error="tfos and the driver of this run were killed",
                ended=round(time.time(), 3),
            )
        _remove_scratch(run)


def _remove_scratch(run: Run) -> None:
    for name in SCRATCH_NAMES:
        path = run.folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def follow_here(submission: Submission, choose_renderer: Callable[[], Renderer]) -> RunStatus:
    """Follow a run in this process until it has ended; the renderer is chosen when spark-submit has started."""
    run, launch = submission.run, submission.launch
    if not run.remote_path.exists():
        return Follower(run, launch, choose_renderer).follow()
    # Its imports are a fifth of the CPU time of a command that has no use for them.
    from tfos_cli.remote.follower import follower_of

    return follower_of(run, launch, choose_renderer).follow()


def follow_detached(submission: Submission) -> None:
    """Start a follower that outlives this process, and return when it can be cancelled.

    Raises:
        SubmitError: it did not start.
    """
    run = submission.run
    log = os.open(run.folder / "follower.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "tfos_cli.detached", str(run.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)
    _await_ready(child, submission.launch)
    follower = run.status().follower
    if follower is None or follower.pid != child.pid:
        child.kill()
        child.wait(_DETACH_TIMEOUT_S)
        submission.prepared.clean()
        raise SubmitError(f"the process that follows run {run.id} did not start", f"Read {run.folder / 'follower.log'}.")


def _await_ready(child: subprocess.Popen[bytes], launch: Launch) -> None:
    """Hand over what to start, and wait until the follower closes its stdout: when it has started spark-submit, or it died.

    Not `communicate`, which waits for the end of the child as well.
    """
    if child.stdin is None or child.stdout is None:
        return
    with contextlib.suppress(BrokenPipeError), child.stdin:
        child.stdin.write(launch.to_json().encode())
    with child.stdout:
        select.select([child.stdout], [], [], _DETACH_TIMEOUT_S)


def start_timeout_s(resolved: ResolvedSpec) -> float:
    """Longest wait for the SparkContext."""
    spec = resolved.spec
    match master_kind(spec.spark.master):
        case MasterKind.STANDALONE:
            limit = _STANDALONE_START_S
        case MasterKind.YARN | MasterKind.KUBERNETES:
            limit = _MANAGED_START_S + spec.reservation_timeout
        case _:
            limit = _LOCAL_START_S
    packages = spec.spark.packages or spec.spark.conf.get("spark.jars.packages")
    archives = spec.environment.pack != "none" or spec.spark.archives or spec.spark.conf.get("spark.archives")
    return limit + (_PACKAGES_S if packages else 0.0) + (_ARCHIVES_S if archives else 0.0)


def _master_shown(resolved: ResolvedSpec) -> str:
    return resolved.spec.spark.master or f"this machine ({resolved.spec.num_executors} executors)"
