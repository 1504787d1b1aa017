"""The program that spark-submit runs on the driver: `driver.py PLAN.json`.

It imports the standard library and tfos_core only (and pyspark, which spark-submit brings), because in cluster deploy mode it runs
on the cluster. Everything it knows comes from the plan; everything it says goes into the run record and on the channel to the
command line. stdout belongs to the user's code. On the cluster the record is on a file system that both sides reach, the channel
is a connection over the network, and what is secret comes in a file beside the plan.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfos_core.errors import ConfigError
from tfos_core.exit_codes import ExitCode
from tfos_core.jobplan import JobPlan, RemotePlan
from tfos_core.shim.channel import ChannelDescriptor, FollowerChannel
from tfos_core.shim.job import Engine, Job
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.remote import RECORD_FOLDER, RemoteRecord, localized, open_uplink, output_sent
from tfos_core.shim.scratch import remove_later
from tfos_core.shim.status import ProcessIdentity, RunState
from tfos_core.shim.watch import ParentWatch
from tfos_core.uplink.private import PRIVATE_FILE, Private

__all__ = ("main", "run_plan", "run_remote_plan")

#: Threads that the user's code left running do not keep the driver alive for longer.
_EXIT_TIMEOUT_S = 10.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Follower:
    """What the shim does when the command line that follows the run speaks, or goes away."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._job: Job | None = None
        self._reason: str | None = None
        self.is_gone = False
        self._lock = threading.Lock()

    def attach(self, job: Job) -> None:
        """From now on this job is stopped; at once when a stop was asked for before."""
        with self._lock:
            self._job = job
            reason = self._reason
        if reason is not None:
            job.stop(reason)

    def stop(self, reason: str) -> None:
        """Stop the job, or remember to."""
        with self._lock:
            self._reason = self._reason or reason
            job = self._job
        if job is not None:
            job.stop(reason)

    def gone(self) -> None:
        """The follower died. A detached run goes on without it; any other ends, because nobody could stop it any more."""
        self.is_gone = True
        _close_output()
        self._remove_channel()
        if not self._plan.detached:
            self.stop("the tfos process that followed the run is gone")

    def _remove_channel(self) -> None:
        """Clean up behind a follower that was killed."""
        if self._plan.channel is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                path = Path(ChannelDescriptor.read(Path(self._plan.channel)).socket)
                Path(self._plan.channel).unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def main(argv: Sequence[str]) -> int:
    """Run the plan whose path is the only argument, and return the exit code of the run."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    _separate_stderr()
    plan = JobPlan.from_json(Path(argv[1]).read_text(encoding="utf-8"))
    engine = Engine(start_spark=start_spark, run_cluster=run_cluster)
    if plan.remote is not None:
        code = run_remote_plan(plan, plan.remote, engine=engine, folder=Path.cwd(), jvm=driver_jvm, environ=os.environ)
    else:
        code = run_plan(plan, engine=engine, environ=os.environ)
    _arm_exit(code)
    return code


def run_plan(plan: JobPlan, *, engine: Engine, environ: Mapping[str, str]) -> ExitCode:
    """Run a plan between its record, its follower and its parent process."""
    secrets = {name: environ[name] for name in plan.secrets if name in environ}
    follower = Follower(plan)
    with contextlib.ExitStack() as stack:
        record = stack.enter_context(RecordWriter(Path(plan.run_folder), Redactor(secrets.values())))
        record.update(state=RunState.STARTING, driver=ProcessIdentity.of(os.getpid()))
        channel = None
        if plan.channel is not None:
            descriptor = ChannelDescriptor.read(Path(plan.channel))
            channel = FollowerChannel(descriptor, on_shutdown=follower.stop, on_closed=follower.gone)
            stack.callback(channel.close)
        job = Job(plan, engine=engine, record=record, channel=channel, secrets=secrets)
        stack.enter_context(ParentWatch(job.driver_lost))
        stack.enter_context(_StopSignals(follower))
        follower.attach(job)
        code = job.run()
        if follower.is_gone:
            remove_later(Path(plan.run_folder), os.getppid())
        return code


def run_remote_plan(
    plan: JobPlan,
    remote: RemotePlan,
    *,
    engine: Engine,
    folder: Path,
    jvm: Callable[[], tuple[Any, Any]],
    environ: Mapping[str, str],
) -> ExitCode:
    """Run a plan in cluster deploy mode, in the working folder of the driver.

    Args:
        folder: holds the file with the secrets.
        jvm: gives the driver's JVM and its Hadoop configuration.
        environ: has the secrets that are not in the file, as in a pod of Kubernetes.
    """
    private = Private.read(folder / PRIVATE_FILE)
    secrets = {**{name: environ[name] for name in plan.secrets if name in environ}, **private.values}
    plan = localized(plan, remote, folder / RECORD_FOLDER)
    follower = Follower(plan)
    with contextlib.ExitStack() as stack:
        uplink = stack.enter_context(open_uplink(remote, private, jvm=jvm, on_shutdown=follower.stop))
        record = stack.enter_context(RemoteRecord(Path(plan.run_folder), Redactor(secrets.values()), uplink))
        record.update(state=RunState.STARTING)
        job = Job(plan, engine=engine, record=record, channel=uplink, secrets=secrets)
        stack.enter_context(ParentWatch(job.driver_lost))
        if remote.heeds_signals:
            stack.enter_context(_StopSignals(follower))
        stack.enter_context(output_sent(job.output))
        follower.attach(job)
        return job.run()


def driver_jvm() -> tuple[Any, Any]:
    """The JVM that has started this process, and its Hadoop configuration; before there is a SparkContext."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    configuration = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(jvm.org.apache.spark.SparkConf())
    return jvm, configuration


def start_spark(plan: JobPlan) -> Any:
    """The SparkSession of the application that spark-submit prepared."""
    from pyspark.sql import SparkSession

    # On a cluster manager the name is what finds an application again: that of the run, as the command line has set it.
    name = plan.name if plan.remote is None else plan.run_id
    spark = SparkSession.builder.appName(name).getOrCreate()
    # SparkContext installs its own SIGINT handler, which would end the driver before the cluster is shut down
    _StopSignals.reinstall()
    return spark


def run_cluster(*args: Any, **kwargs: Any) -> Any:
    """`tfos_core.cluster.run`; imported late, so that a driver that can not start Spark says so first."""
    from tfos_core import cluster

    return cluster.run(*args, **kwargs)


class _StopSignals:
    """While open, SIGINT, SIGTERM and SIGHUP stop the job as the follower would; in the main thread only."""

    _current: _StopSignals | None = None

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _STOP_SIGNALS}
            _StopSignals._current = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        _StopSignals._current = None
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @classmethod
    def reinstall(cls) -> None:
        """Take the signals back from a library that changed them."""
        if cls._current is not None:
            for number in _STOP_SIGNALS:
                signal.signal(number, cls._current._handle)

    def _handle(self, number: int, frame: object) -> None:
        # a thread, because the main thread may hold the very locks that stopping needs
        name = signal.Signals(number).name
        threading.Thread(target=self._follower.stop, args=(f"the driver received {name}",), daemon=True).start()


def _separate_stderr() -> None:
    """Send stderr where the JVM's goes: spark-submit merges a Python driver's stderr into its stdout, which carries results."""
    try:
        descriptor = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    except OSError:
        return  # no /proc, or a stderr that can not be opened again: it stays merged
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _close_output() -> None:
    """Nobody reads any more: what is printed from now on must not raise BrokenPipeError in the user's code."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(devnull, descriptor)
    os.close(devnull)


def _arm_exit(code: int) -> None:
    timer = threading.Timer(_EXIT_TIMEOUT_S, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except (OSError, ValueError, ConfigError) as exc:
        sys.exit(f"the driver shim can not run its plan: {exc}")
