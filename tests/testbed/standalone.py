"""A Spark Standalone cluster of real processes on loopback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from testbed.processes import Process, descendants, kill_all, kill_group, marked, start_child, wait_until_gone
from testbed.spark_home import SMALL_JAVA, find_spark
from testbed.waiting import Deadline, poll_until

__all__ = ("StandaloneCluster", "WorkerOptions", "WorkerProcess", "gpu_worker")

CLUSTER_MARK = "TESTBED_CLUSTER"
LOOPBACK = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
MASTER_WEB = re.compile(r"Bound MasterWebUI to .*started at (http://\S+)")
MASTER_READY = re.compile(r"I have been elected leader")
WORKER_READY = re.compile(r"Successfully registered with master")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """One Worker: `memory` as Spark writes it; `conf` are its own Spark settings.

    `host` is the address that it listens on, `prefix` the command that starts it there (another network namespace), `work` the
    folder of its executors when it is not to be one of the cluster's.
    """

    cores: int = 1
    memory: str = "1g"
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = LOOPBACK
    prefix: Sequence[str] = ()
    work: Path | None = None


class Daemon:
    """A Master or Worker whose log is read as it is written, so that a line can be waited for."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log_path = folder / "daemon.log"
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self.process = cast(
            "subprocess.Popen[str]",
            start_child(
                command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, folder=folder, text=True
            ),
        )
        self._reader = threading.Thread(target=self._read, name=f"{name}-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The JVM itself: spark-class replaces itself with it."""
        return self.process.pid

    @property
    def log(self) -> str:
        """All that it has written."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, *patterns: re.Pattern[str], deadline: Deadline) -> list[re.Match[str]]:
        """The first match of each pattern, as soon as all are there."""
        with self._changed:
            while True:
                found = [next(filter(None, map(pattern.search, self._lines)), None) for pattern in patterns]
                matches = [match for match in found if match is not None]
                if len(matches) == len(patterns):
                    return matches
                if self._ended or deadline.is_over:
                    how = f"ended with {self.process.poll()}" if self._ended else f"is not ready after {deadline.seconds:g} s"
                    raise AssertionError(f"{self.name} {how}; last lines:\n{''.join(self._lines[-30:])}")
                self._changed.wait(deadline.left)

    def kill(self) -> None:
        """SIGKILL to the JVM alone, as when a host goes away; its executors notice by themselves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> None:
        """End it and its process group."""
        kill_group(self.process)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.log_path.open("w") as log:
            for line in self.process.stdout:
                log.write(line)
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class WorkerProcess(Daemon):
    """A Worker and the executors below it."""

    def executors(self) -> tuple[Process, ...]:
        """The executor JVMs that this Worker runs now."""
        return tuple(process for process in descendants(self.pid) if process.runs("CoarseGrainedExecutorBackend"))


class StandaloneCluster:
    """A Master and Workers, each a process of its own; a context manager that leaves nothing behind.

    Args:
        workers: how many Workers, or one `WorkerOptions` for each.
        conf: Spark settings of the Master and of all Workers.
        start_s: seconds within which all must be up.
        host: the address that the Master listens on, and `prefix` the command that starts it there.
    """

    def __init__(
        self,
        workers: int | Sequence[WorkerOptions] = 2,
        *,
        conf: Mapping[str, str] | None = None,
        start_s: float = 60.0,
        host: str = LOOPBACK,
        prefix: Sequence[str] = (),
    ) -> None:
        self._host = host
        self._prefix = tuple(prefix)
        self._options = tuple(workers) if not isinstance(workers, int) else (WorkerOptions(),) * workers
        self._conf = dict(conf or {})
        self._start_s = start_s
        self._mark = uuid.uuid4().hex
        self.folder = Path()
        self.url = ""
        self.web_url = ""
        self.master: Daemon
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="sa-"))
        try:
            deadline = Deadline(self._start_s)
            self.master = self._start_master()
            # Workers need the URL; the web port comes later and nobody waits for it here.
            (url,) = self.master.wait_for(MASTER_URL, deadline=deadline)
            self.url = url[1]
            self.workers = [self._start_worker(index, options) for index, options in enumerate(self._options)]
            web, _ = self.master.wait_for(MASTER_WEB, MASTER_READY, deadline=deadline)
            self.web_url = web[1]
            for worker in self.workers:
                worker.wait_for(WORKER_READY, deadline=deadline)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment for a driver that uses this cluster."""
        return self._environment()

    def executors(self) -> tuple[Process, ...]:
        """All executor JVMs."""
        return tuple(process for worker in self.workers for process in worker.executors())

    def wait_for_executors(self, count: int, deadline_s: float = 60.0) -> tuple[Process, ...]:
        """The executor JVMs, once there are `count`."""
        return poll_until(
            lambda: found if len(found := self.executors()) >= count else (), deadline_s, what=f"{count} executors on {self.url}"
        )

    def close(self) -> None:
        """Kill everything that the cluster started, and remove its folder. May be called twice."""
        daemons = [*self.workers, *([self.master] if hasattr(self, "master") else [])]
        # Whatever an executor left daemonised carries the mark too: a test that cares looks before the cluster goes down.
        below = [process for process in marked(self._mark, name=CLUSTER_MARK) if process.pid not in {d.pid for d in daemons}]
        for daemon in daemons:
            daemon.close()
        kill_all(below)
        kill_all(marked(self._mark, name=CLUSTER_MARK))
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill_worker(self, index: int, *, with_executors: bool = True) -> None:
        """Kill a Worker, and its executors with it unless they are left to notice."""
        executors = self.workers[index].executors()
        self.workers[index].kill()
        if with_executors:
            kill_all(executors)
        else:
            assert not wait_until_gone(executors, 30), "executors outlive their Worker"

    def replace_worker(self, pid: int, *, deadline_s: float = 60.0) -> None:
        """Start a Worker in the place of one that was killed."""
        (index,) = (index for index, worker in enumerate(self.workers) if worker.pid == pid)
        self.workers[index].close()
        self.workers[index] = self._start_worker(index, self._options[index])
        self.workers[index].wait_for(WORKER_READY, deadline=Deadline(deadline_s))

    def _start_master(self) -> Daemon:
        command = [MASTER, "--host", self._host, "--port", "0", "--webui-port", "0"]
        argv, environment, folder = self._daemon("master", command, self._conf)
        return Daemon("master", [*self._prefix, *argv], environment | {"SPARK_LOCAL_IP": self._host}, folder)

    def _start_worker(self, index: int, options: WorkerOptions) -> WorkerProcess:
        name = f"worker-{index}"
        work = options.work or self.folder / name / "work"
        command = [WORKER, "--host", options.host, "--port", "0", "--webui-port", "0", "--work-dir", str(work)]
        command += ["--cores", str(options.cores), "--memory", options.memory, self.url]
        extra = {"SPARK_LOCAL_IP": options.host} | dict(options.environment)
        argv, environment, folder = self._daemon(name, command, self._conf | dict(options.conf), extra)
        return WorkerProcess(name, [*options.prefix, *argv], environment, folder)

    def _daemon(
        self, name: str, command: Sequence[str], conf: Mapping[str, str], extra: Mapping[str, str] | None = None
    ) -> tuple[list[str], dict[str, str], Path]:
        folder = self.folder / name
        (folder / "local").mkdir(parents=True, exist_ok=True)
        settings = {"spark.master.rest.enabled": "false"} | dict(conf)
        properties = folder / "spark.properties"
        properties.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        program, *arguments = command
        spark_class = str(find_spark() / "bin" / "spark-class")
        argv = [spark_class, program, "--properties-file", str(properties), *arguments]
        return argv, self._environment() | {"SPARK_LOCAL_DIRS": str(folder / "local")} | dict(extra or {}), folder

    def _environment(self) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        return environment | {
            CLUSTER_MARK: self._mark,
            "SPARK_HOME": str(find_spark()),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
            "SPARK_LAUNCHER_OPTS": SMALL_JAVA,
            # Executors have the environment of their Worker.
            "JDK_JAVA_OPTIONS": SMALL_JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }


def gpu_worker(folder: Path, addresses: Sequence[str], *, cores: int = 1, memory: str = "1g") -> WorkerOptions:
    """A Worker that offers GPUs with these addresses, through a discovery script written into `folder`."""
    script = folder / f"gpus-{'-'.join(addresses)}.sh"
    quoted = ", ".join(f'"{address}"' for address in addresses)
    script.write_text(f'#!/bin/sh\necho \'{{"name": "gpu", "addresses": [{quoted}]}}\'\n')
    script.chmod(0o755)
    conf = {"spark.worker.resource.gpu.amount": str(len(addresses)), "spark.worker.resource.gpu.discoveryScript": str(script)}
    return WorkerOptions(cores=cores, memory=memory, conf=conf)
