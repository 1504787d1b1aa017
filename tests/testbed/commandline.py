"""Running `tfos` as its users do, and looking at what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest import mock

from testbed.processes import kill_group, start_child
from testbed.waiting import Deadline

__all__ = ("Outcome", "TfosProcess", "run_fresh", "run_here", "tfos_command")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended."""

    line: str
    exit_code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        """The JSON objects of stdout, one a line."""
        return tuple(json.loads(line) for line in self.stdout.splitlines())

    def check(self, exit_code: int) -> Outcome:
        """This outcome, if the exit code is as expected; an error with both streams otherwise."""
        assert self.exit_code == exit_code, (
            f"{self.line!r} exited {self.exit_code}, not {exit_code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
        )
        return self


def tfos_command() -> list[str]:
    """The console script next to the interpreter that runs the tests."""
    script = Path(sys.executable).with_name("tfos")
    return [str(script)] if script.exists() else [sys.executable, "-m", "tfos_cli"]


def split_line(line: str | Sequence[str]) -> list[str]:
    """The arguments of a line that starts with `tfos`."""
    words = shlex.split(line) if isinstance(line, str) else list(line)
    assert words and words[0] == "tfos", f"a line starts with 'tfos': {line!r}"
    return words[1:]


def run_fresh(
    line: str | Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None, timeout_s: float = 60.0
) -> Outcome:
    """Run a line in a process of its own; it and its group are killed after `timeout_s`."""
    child = cast(
        "subprocess.Popen[str]",
        start_child(
            [*tfos_command(), *split_line(line)],
            environment=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            folder=folder,
            text=True,
        ),
    )
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    finally:
        kill_group(child)
    return Outcome(line=str(line), exit_code=child.returncode, stdout=stdout, stderr=stderr)


def run_here(line: str | Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None) -> Outcome:
    """Run a line in this process: fast, for commands that start nothing."""
    from tfos_cli.main import main

    stdout, stderr = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["tfos", *split_line(line)]),
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            code = main()
        except SystemExit as exit_:
            code = exit_.code
    number = code if isinstance(code, int) else 0 if code is None else 1
    return Outcome(line=str(line), exit_code=number, stdout=stdout.getvalue(), stderr=stderr.getvalue())


class TfosProcess:
    """A running `tfos` whose events can be waited for; use as a context manager.

    With `--json` in the line, each line of stdout is an event. Signals go to the process alone; `interrupt_group` is a terminal's
    Ctrl-C. `prefix` is a command that starts it elsewhere, as in another network namespace.
    """

    def __init__(
        self, line: str | Sequence[str], *, environment: Mapping[str, str], folder: Path | None = None, prefix: Sequence[str] = ()
    ) -> None:
        self.line = str(line)
        self._changed = threading.Condition()
        self._stdout: list[str] = []
        self._stderr: list[str] = []
        self._open_streams = 2
        self.process = cast(
            "subprocess.Popen[str]",
            start_child(
                [*prefix, *tfos_command(), *split_line(line)],
                environment=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                folder=folder,
                text=True,
            ),
        )
        streams = ((self.process.stdout, self._stdout), (self.process.stderr, self._stderr))
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in streams]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> TfosProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """What it has written to stdout."""
        with self._changed:
            return "".join(self._stdout)

    @property
    def stderr(self) -> str:
        """What it has written to stderr."""
        with self._changed:
            return "".join(self._stderr)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events so far."""
        with self._changed:
            return _events(self._stdout)

    def wait_for_event(
        self, kind: str, deadline_s: float = 90.0, *, where: Callable[[dict[str, Any]], bool] | None = None
    ) -> dict[str, Any]:
        """The first event of this kind, as soon as it is there (and for which `where` is true)."""

        def found(lines: list[str]) -> dict[str, Any] | None:
            events = (event for event in _events(lines) if event.get("event") == kind)
            return next((event for event in events if where is None or where(event)), None)

        return self._wait(self._stdout, found, deadline_s, f"event {kind!r}")

    def wait_for_text(self, text: str, deadline_s: float = 90.0) -> str:
        """The first line of stderr with this text."""
        return self._wait(
            self._stderr, lambda lines: next((line for line in lines if text in line), None), deadline_s, f"{text!r} on stderr"
        )

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send a signal to the process alone."""
        self.process.send_signal(number)

    def interrupt_group(self) -> None:
        """What Ctrl-C in a terminal does: SIGINT to every process of the foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, deadline_s: float = 90.0, *, exit_code: int | None = None) -> Outcome:
        """Wait for the end, and compare the exit code if one is given."""
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.line!r} still runs after {deadline_s:g} s\n{self._streams()}") from None
        for reader in self._readers:
            reader.join(5)
        outcome = Outcome(line=self.line, exit_code=self.process.returncode, stdout=self.stdout, stderr=self.stderr)
        return outcome if exit_code is None else outcome.check(exit_code)

    def close(self) -> None:
        """Kill it with its group, if it still runs."""
        kill_group(self.process)
        for reader in self._readers:
            reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _wait(self, lines: list[str], find: Callable[[list[str]], T | None], deadline_s: float, what: str) -> T:
        deadline = Deadline(deadline_s)
        with self._changed:
            while True:
                value = find(lines)
                if value is not None:
                    return value
                if self._open_streams == 0 or deadline.is_over:
                    how = "ended" if self._open_streams == 0 else f"has run {deadline_s:g} s"
                    raise AssertionError(f"{self.line!r} {how} without {what}\n{self._streams()}")
                self._changed.wait(deadline.left)

    def _streams(self) -> str:
        return f"--- stdout\n{''.join(self._stdout)}\n--- stderr\n{''.join(self._stderr)}"

    def _read(self, stream: io.TextIOBase, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()


def _events(lines: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found
