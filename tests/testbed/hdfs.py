"""A NameNode and a DataNode, real processes on loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.standalone import Daemon
from testbed.waiting import Deadline

__all__ = ("HdfsCluster",)

NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
NAMENODE_UP = re.compile(r"NameNode RPC up at: \S*:(\d+)")
DATANODE_UP = re.compile(r"successfully registered with NN")
OPENED = ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.net")
LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%p %c{1}: %m%n
"""


class HdfsCluster:
    """HDFS with one copy of each block; a context manager that leaves nothing behind.

    Args:
        jars: Hadoop's.
        start_s: seconds within which both must be up.
    """

    def __init__(self, jars: Path, *, start_s: float = 90.0) -> None:
        self._jars = jars
        self._start_s = start_s
        self._folder = Path()
        self._daemons: list[Daemon] = []
        #: Without a slash at the end.
        self.url = ""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
        try:
            deadline = Deadline(self._start_s)
            self._configure("namenode", "hdfs://127.0.0.1:0")
            format_ = [*self._java("namenode"), NAMENODE, "-format", "-nonInteractive", "-force"]
            subprocess.run(format_, check=True, capture_output=True, timeout=self._start_s, env=self._environment())
            namenode = self._start("namenode", NAMENODE)
            (up,) = namenode.wait_for(NAMENODE_UP, deadline=deadline)
            self.url = f"hdfs://127.0.0.1:{up[1]}"
            self._configure("datanode", self.url)
            self._start("datanode", DATANODE).wait_for(DATANODE_UP, deadline=deadline)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def configuration(self) -> Path:
        """What HADOOP_CONF_DIR of a client can be."""
        return self._folder / "datanode"

    def close(self) -> None:
        """End both, and remove what they stored. May be called twice."""
        for daemon in reversed(self._daemons):
            daemon.close()
        self._daemons.clear()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name: str, program: str) -> Daemon:
        daemon = Daemon(name, [*self._java(name), program], self._environment(), self._folder / name)
        self._daemons.append(daemon)
        return daemon

    def _java(self, name: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        opens = [word for package in OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        return [java, "-Xmx256m", "-XX:+UseSerialGC", *opens, "-cp", f"{self._folder / name}:{self._jars}/*"]

    def _environment(self) -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if not key.startswith(("HADOOP_", "HDFS_"))}

    def _configure(self, name: str, default: str) -> None:
        folder = self._folder / name
        # Their web servers want these folders, and the jars have none.
        for part in ("hdfs", "datanode", "static"):
            (folder / "webapps" / part).mkdir(parents=True)
        (folder / "log4j.properties").write_text(LOG4J)
        _write(folder / "core-site.xml", {"fs.defaultFS": default})
        _write(
            folder / "hdfs-site.xml",
            {
                "dfs.namenode.name.dir": f"file://{folder}/names",
                "dfs.namenode.http-address": "127.0.0.1:0",
                "dfs.datanode.data.dir": f"file://{folder}/blocks",
                "dfs.datanode.address": "127.0.0.1:0",
                "dfs.datanode.http.address": "127.0.0.1:0",
                "dfs.datanode.ipc.address": "127.0.0.1:0",
                "dfs.webhdfs.enabled": "false",
                "dfs.replication": "1",
                "dfs.namenode.safemode.extension": "0",
            },
        )


def _write(path: Path, values: Mapping[str, str]) -> None:
    lines = "".join(f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in values.items())
    path.write_text(f"<configuration>\n{lines}</configuration>\n")
