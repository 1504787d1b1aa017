"""What a whole test run has to itself: a mark for its processes, and a short TMPDIR."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.processes import MARK, Process, kill_all, marked, read_process
from testbed.spark_home import SMALL_JAVA, link_spark_home

__all__ = ("Session",)

# Unix socket paths have at most 107 bytes, and pytest's own temporary folders come close to that.
PREFIX = "tft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of the tests. `temporary` is TMPDIR of everything that it starts."""

    mark: str
    temporary: Path

    @classmethod
    def start(cls) -> Self:
        """Change the environment of this process, and so of all that it starts."""
        _sweep(Path(tempfile.gettempdir()))
        # pytest's tmp_path stays where people look for it after a failure.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        temporary = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        mark = uuid.uuid4().hex
        tests = str(Path(__file__).parent.parent)
        os.environ |= {
            MARK: mark,
            "TMPDIR": str(temporary),
            # Functions of `testbed.nodes` are imported by name on executors.
            "PYTHONPATH": os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH", "")])),
            # local-cluster writes $SPARK_HOME/work.
            "SPARK_HOME": str(link_spark_home(temporary / "spark")),
            "SPARK_LOCAL_DIRS": str(temporary / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": SMALL_JAVA,
            "SPARK_SUBMIT_OPTS": SMALL_JAVA,
            "PYSPARK_PYTHON": sys.executable,
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        for name in [name for name in os.environ if name.startswith("TFOS_")]:
            del os.environ[name]
        tempfile.tempdir = None
        return cls(mark=mark, temporary=temporary)

    @property
    def own_folder(self) -> Path:
        """Where tfos puts sockets and descriptors of this session's processes."""
        return self.temporary / f"tfos-{os.getuid()}"

    def processes(self) -> tuple[Process, ...]:
        """All processes of this session except this one."""
        return tuple(process for process in marked(self.mark) if process.pid != os.getpid())

    def end(self) -> tuple[Process, ...]:
        """Kill what is left, remove the folder, and return what had to be killed."""
        left = self.processes()
        kill_all(left)
        shutil.rmtree(self.temporary, ignore_errors=True)
        return left


def _sweep(folder: Path) -> None:
    """Remove the folders of test runs that were killed, and their processes."""
    for path in folder.glob(f"{PREFIX}*-*"):
        pid = path.name[len(PREFIX) :].partition("-")[0]
        if pid.isdigit() and read_process(int(pid)) is None:
            kill_all(_users_of(path))
            with contextlib.suppress(OSError):
                shutil.rmtree(path)


def _users_of(folder: Path) -> tuple[Process, ...]:
    return marked(str(folder), name="TMPDIR")
