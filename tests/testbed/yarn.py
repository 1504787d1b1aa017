"""A YARN of a ResourceManager and two NodeManagers over HDFS, real processes on loopback.

`make yarn-up` (or `PYTHONPATH=tests python -m testbed.yarn up`) starts one and leaves it running, `make yarn-down` ends it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.hadoop_jars import NoHadoopError, hadoop_jars
from testbed.hdfs import HdfsCluster
from testbed.processes import MARK, Process, kill_all, marked
from testbed.spark_home import SMALL_JAVA, find_spark
from testbed.standalone import Daemon
from testbed.waiting import Deadline, poll_until

__all__ = ("YarnCluster",)

CLUSTER_MARK = "TESTBED_YARN"
RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
MANAGER_UP = re.compile(r"Transitioned to active state")
NODE_UP = re.compile(r"Registered with ResourceManager as (\S+)")
OPENED = ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.net", "java.io", "java.util.concurrent")
#: Heap of each daemon. With a container that waits the NodeManager holds 90 MB.
HEAP = "-Xmx256m"
QUEUES = ("default", "ml")
#: What `up` says, for `down` and for tests that use what is there. Not below TMPDIR, which is each test run's own.
STATE = Path.home() / ".cache" / "tfos-tests" / "yarn-up"


class YarnCluster:
    """YARN and HDFS; a context manager that leaves nothing behind.

    Containers are processes of this user. A NodeManager looks at their memory four times a second, and kills one whose process tree
    holds more than it asked for (`yarn.nodemanager.pmem-check-enabled`).

    Args:
        jars: Hadoop's.
        nodes: how many NodeManagers.
        memory_mb: what each of them has to give.
        start_s: seconds within which all must be up.
    """

    def __init__(self, jars: Path, *, nodes: int = 2, memory_mb: int = 8192, start_s: float = 300.0) -> None:
        self._jars = jars
        self._nodes = nodes
        self._memory_mb = memory_mb
        self._start_s = start_s
        self._folder = Path()
        self._daemons: list[Daemon] = []
        self._hdfs: HdfsCluster | None = None
        self._mark = ""
        self._url = ""
        self._attached: Path | None = None

    def __enter__(self) -> Self:
        if self._attached is not None:
            return self
        self._folder = Path(tempfile.mkdtemp(prefix="yarn-"))
        self._mark = self._folder.name
        try:
            deadline = Deadline(self._start_s)
            self._hdfs = HdfsCluster(self._jars, start_s=self._start_s)
            self._hdfs.__enter__()
            self._url = self._hdfs.url
            ports = _free_ports(5)
            self._configure("client", ports)
            manager = self._start("resourcemanager", RESOURCE_MANAGER, ports)
            manager.wait_for(MANAGER_UP, deadline=deadline)
            nodes = [self._start(f"nodemanager-{number}", NODE_MANAGER, ports) for number in range(self._nodes)]
            for node in nodes:
                node.wait_for(NODE_UP, deadline=deadline)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @classmethod
    def running(cls) -> Self | None:
        """The one that `make yarn-up` has left, if there is one; closing it ends nothing."""
        if not STATE.exists():
            return None
        found = cls(Path())
        folder = Path(STATE.read_text().partition("HADOOP_CONF_DIR=")[2].split()[0]).parent
        found._attached, found._mark = folder, folder.name
        found._url = STATE.read_text().partition("\n# hdfs://")[2].partition(",")[0]
        found._url = f"hdfs://{found._url}"
        return found

    @property
    def url(self) -> str:
        """Of the HDFS, without a slash at its end."""
        return self._url

    @property
    def configuration(self) -> Path:
        """What HADOOP_CONF_DIR of a client is."""
        return self.folder / "client"

    @property
    def spark_conf(self) -> dict[str, str]:
        """Spark properties that save each submission the upload of Spark's own jars, which are on this machine, and time."""
        names = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions", "spark.yarn.am.extraJavaOptions")
        small = dict.fromkeys(names, SMALL_JAVA) | {"spark.ui.enabled": "false"}
        return {"spark.yarn.jars": f"local:{find_spark()}/jars/*"} | small

    @property
    def folder(self) -> Path:
        """Logs and scratch of the daemons."""
        return self._attached or self._folder

    def containers(self, application_id: str) -> tuple[Process, ...]:
        """Processes of an application, in its containers or left behind by them."""
        # container_TIME_NUMBER_..., where the application is application_TIME_NUMBER.
        prefix = application_id.replace("application_", "container_") + "_"
        found = marked(self._mark, name=CLUSTER_MARK)
        return tuple(each for each in found if each.environment.get("CONTAINER_ID", "").startswith(prefix))

    def container_log(self, application_id: str, name: str = "stderr") -> str:
        """What all containers of an application have written to one of their files."""
        paths = sorted(self.folder.glob(f"nodemanager-*/logs/{application_id}/container_*/{name}"))
        return "\n".join(f"--- {path.parent.name}\n{path.read_text(errors='replace')}" for path in paths)

    def wait_until_gone(self, application_id: str, deadline_s: float = 60.0) -> None:
        """Until nothing of an application runs any more."""
        poll_until(lambda: not self.containers(application_id), deadline_s, what=lambda: f"gone: {self.containers(application_id)}")

    def close(self) -> None:
        """End all, and remove what they stored. May be called twice."""
        for daemon in reversed(self._daemons):
            daemon.close()
        self._daemons.clear()
        if self._attached is not None:
            return
        if self._mark:
            # Containers are sessions of their own.
            kill_all(marked(self._mark, name=CLUSTER_MARK))
        if self._hdfs is not None:
            self._hdfs.close()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str, program: str, ports: list[int]) -> Daemon:
        folder = self._configure(name, ports)
        daemon = Daemon(name, [*self._java(folder), program], self._environment(), folder)
        self._daemons.append(daemon)
        return daemon

    def _java(self, folder: Path) -> list[str]:
        opens = [word for package in OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        return [str(_java_home() / "bin" / "java"), HEAP, "-XX:+UseSerialGC", *opens, "-cp", f"{folder}:{self._jars}/*"]

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HADOOP_", "YARN_", "HDFS_", "TFOS_"))}
        return kept | {"JAVA_HOME": str(_java_home()), CLUSTER_MARK: self._mark}

    def _configure(self, name: str, ports: list[int]) -> Path:
        folder = self._folder / name
        for part in ("local", "logs"):
            (folder / part).mkdir(parents=True)
        (folder / "log4j.properties").write_text(LOG4J)
        write_site(folder / "core-site.xml", {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(folder / "tmp")})
        write_site(folder / "capacity-scheduler.xml", _queues())
        scheduler, tracker, clients, admin, web = (f"127.0.0.1:{port}" for port in ports)
        write_site(
            folder / "yarn-site.xml",
            {
                "yarn.resourcemanager.hostname": "127.0.0.1",
                "yarn.resourcemanager.scheduler.address": scheduler,
                "yarn.resourcemanager.resource-tracker.address": tracker,
                "yarn.resourcemanager.address": clients,
                "yarn.resourcemanager.admin.address": admin,
                "yarn.resourcemanager.webapp.address": web,
                "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
                "yarn.scheduler.minimum-allocation-mb": "64",
                "yarn.nodemanager.hostname": "127.0.0.1",
                "yarn.nodemanager.address": "127.0.0.1:0",
                "yarn.nodemanager.localizer.address": "127.0.0.1:0",
                "yarn.nodemanager.collector-service.address": "127.0.0.1:0",
                "yarn.nodemanager.webapp.address": "127.0.0.1:0",
                "yarn.nodemanager.local-dirs": str(folder / "local"),
                "yarn.nodemanager.log-dirs": str(folder / "logs"),
                "yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
                "yarn.nodemanager.resource.cpu-vcores": "8",
                # Containers do not inherit the daemon's environment.
                "yarn.nodemanager.admin-env": ",".join([f"{CLUSTER_MARK}={self._mark}", f"{MARK}={os.environ.get(MARK, '')}"]),
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.pmem-check-enabled": "true",
                # Its default leaves the limit to cgroups, and switches the check above off where there are none (seen with 3.4.2).
                "yarn.nodemanager.resource.memory.enforced": "false",
                "yarn.nodemanager.resource-monitor.interval-ms": "250",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
                # Logs stay for whoever looks why a test failed; the folder goes with the cluster.
                "yarn.nodemanager.log.retain-seconds": "86400",
            },
        )
        return folder


LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1}: %m%n
"""


def write_site(path: Path, values: Mapping[str, str]) -> None:
    """One of Hadoop's XML files."""
    lines = "".join(f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in values.items())
    path.write_text(f"<configuration>\n{lines}</configuration>\n")


def _queues() -> dict[str, str]:
    head = "yarn.scheduler.capacity"
    values = {f"{head}.root.queues": ",".join(QUEUES), f"{head}.maximum-am-resource-percent": "1.0"}
    for queue in QUEUES:
        values |= {f"{head}.root.{queue}.capacity": "50", f"{head}.root.{queue}.maximum-capacity": "100"}
        values |= {f"{head}.root.{queue}.user-limit-factor": "2"}
    return values


def _java_home() -> Path:
    configured = os.environ.get("JAVA_HOME")
    return Path(configured) if configured else Path(shutil.which("java") or "/usr/bin/java").resolve().parent.parent


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: YARN's daemons are told each other's before they are bound."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


# The commands: a process in the background holds the cluster.


def up() -> int:
    """Start a cluster that stays."""
    state = STATE
    if state.exists():
        print(f"one is up already: {state.read_text().strip()}")
        return 0
    with (state.with_suffix(".log")).open("wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "testbed.yarn", "hold"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    poll_until(lambda: state.exists() or holder.poll() is not None, 600, what="the cluster's start")
    if not state.exists():
        print(state.with_suffix(".log").read_text(), file=sys.stderr)
        return 1
    print(state.read_text().strip())
    return 0


def hold() -> int:
    """Run a cluster until SIGTERM."""
    try:
        jars = hadoop_jars(yarn=True)
    except NoHadoopError as exc:
        print(exc, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with YarnCluster(jars) as cluster:
        properties = shlex.join(word for name, value in cluster.spark_conf.items() for word in ("--conf", f"{name}={value}"))
        lines = [
            f"export HADOOP_CONF_DIR={cluster.configuration}",
            f"# tfos train SPEC --master yarn {properties} [--set spark.deploy_mode=cluster]",
            f"# {cluster.url}, logs in {cluster.folder}, held by process {os.getpid()}",
        ]
        try:
            STATE.with_suffix(".new").write_text("\n".join(lines) + "\n")
            STATE.with_suffix(".new").rename(STATE)
            while True:
                time.sleep(3600)  # a signal ends it
        finally:
            STATE.unlink(missing_ok=True)


def down() -> int:
    """End the cluster that `up` left."""
    if not STATE.exists():
        print("none is up")
        return 0
    pid = int(STATE.read_text().rpartition(" ")[2])
    os.kill(pid, signal.SIGTERM)
    poll_until(lambda: not Path(f"/proc/{pid}").exists(), 60, what="the cluster's end")
    return 0


if __name__ == "__main__":
    sys.exit({"up": up, "down": down, "hold": hold}[sys.argv[1]]())
