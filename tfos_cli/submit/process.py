"""The running spark-submit: its output, its end, and everything that it has started on this machine.

It gets a session of its own, because Ctrl-C in a terminal goes to the whole foreground group and would kill the JVM before the
cluster can be shut down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from tfos_cli.submit.errors import SubmitError
from tfos_core.settings import MARK_VARIABLE
from tfos_core.shim.redaction import Redactor

if TYPE_CHECKING:
    import psutil

__all__ = ("OutputLog", "SparkSubmit", "Stream", "leftovers", "meaningful")

Stream = Literal["stdout", "stderr"]
LineSink = Callable[[Stream, str], None]

_KEPT_LINES = 400
#: Not psutil.wait_procs: it reaps our own child, whose exit code would be lost for `Popen`.
_LOOK_EVERY_S = 0.05
_LONGEST_LINE_BYTES = 64 * 1024
#: What Spark and Java print around the line that says what is wrong.
_NOISE = (
    " INFO ",
    " DEBUG ",
    "Using Spark's default log4j",
    "Setting default log level",
    "To adjust logging level",
    "\tat ",
    "    at ",
)


class OutputLog:
    """Writes both streams of a process into one file, without secrets, and keeps the last lines."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        self._lock = threading.Lock()
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def write(self, line: str) -> str:
        """Append a line and return it without secrets."""
        clean = self._redactor.text(line)
        with self._lock:
            self._last.append(clean)
            if self._file is not None:
                os.write(self._file, clean.encode("utf-8", "backslashreplace") + b"\n")
        return clean

    def last_lines(self) -> tuple[str, ...]:
        """The newest lines, oldest first."""
        with self._lock:
            return tuple(self._last)

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


class SparkSubmit:
    """A started spark-submit. `on_line` and `on_exit` are called from its threads.

    Args:
        argv: the command.
        environment: the whole environment.
        on_line: gets every line of both streams, without its end.
        on_exit: gets the exit code, negative for a signal, when both streams are read or two seconds after the end.

    Raises:
        SubmitError: the command can not be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None,
        on_line: LineSink,
        on_exit: Callable[[int], None],
    ) -> None:
        self._on_line = on_line
        self._on_exit = on_exit
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise SubmitError(f"{argv[0]} can not be started: {exc.strerror or exc}", "Check SPARK_HOME.") from exc
        self._readers = [self._reader("stdout", self._process.stdout), self._reader("stderr", self._process.stderr)]
        self._waiter = threading.Thread(target=self._wait, name="tfos-submit-wait", daemon=True)
        self._waiter.start()
        import psutil  # noqa: F401 - for the end, now while the JVM starts: it takes as long as the rest of this

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its session."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._waiter.is_alive() and self._process.returncode is None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group; nothing when that is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill_all(self, run_id: str, *, deadline_s: float = 5.0) -> int:
        """SIGKILL everything that belongs to it on this machine, until nothing is left; returns how many were killed."""
        import psutil

        killed: set[int] = set()
        until = time.monotonic() + deadline_s
        while found := leftovers(self.pid, run_id):
            for process in found:
                killed.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_EVERY_S)
        return len(killed)

    def wait_gone(self, run_id: str, *, timeout: float) -> bool:
        """Wait until everything that belongs to it has ended by itself; False when something has not."""
        until = time.monotonic() + timeout
        while leftovers(self.pid, run_id):
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def close(self, *, timeout: float = 5.0) -> None:
        """Wait for the threads; call it when everything has ended."""
        self._waiter.join(timeout)

    def _wait(self) -> None:
        code = self._process.wait()
        for reader in self._readers:
            # a daemon that the job left behind may hold the pipe open: then what is there has been read
            reader.join(2.0)
        self._on_exit(code)

    def _reader(self, stream: Stream, pipe: IO[bytes] | None) -> threading.Thread:
        thread = threading.Thread(target=self._read, args=(stream, pipe), name=f"tfos-submit-{stream}", daemon=True)
        thread.start()
        return thread

    def _read(self, stream: Stream, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(_LONGEST_LINE_BYTES):
                self._on_line(stream, line.decode("utf-8", "replace").rstrip("\r\n"))


def leftovers(session: int, run_id: str) -> list[psutil.Process]:
    """Processes of a session, their descendants, and those that carry the mark of the run; zombies are not counted."""
    import psutil

    mark = f"{run_id}:"
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if os.getsid(process.pid) == session or process.environ().get(MARK_VARIABLE, "").startswith(mark):
                for member in (process, *process.children(recursive=True)):
                    found[member.pid] = member
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _is_alive(process)]


def meaningful(lines: Sequence[str], most: int = 12) -> tuple[str, ...]:
    """The last lines that may say what is wrong: no stack frames, no information."""
    kept = [line for line in lines if line.strip() and not any(noise in line for noise in _NOISE)]
    return tuple(kept[-most:])


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
