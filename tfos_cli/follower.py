"""Follows one run from the start of spark-submit to its exit code. Attached to a terminal or detached, it is the same code.

Everything that happens (events, output, signals, ends) arrives in one queue and is handled by one thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfos_cli.channel import ChannelServer
from tfos_cli.launch import Launch
from tfos_cli.runs import Run
from tfos_cli.submit.errors import SubmitError
from tfos_cli.submit.process import OutputLog, SparkSubmit, Stream
from tfos_cli.submit.reachability import require_reachable
from tfos_core.errors import InterruptedRunError, TfosError
from tfos_core.event_line import event_line
from tfos_core.settings import STOP_TIMEOUT_S
from tfos_core.shim.record import RecordWriter
from tfos_core.shim.redaction import Redactor
from tfos_core.shim.status import ProcessIdentity, RunState, RunStatus

if TYPE_CHECKING:
    from tfos_cli.diagnosis import Evidence
    from tfos_cli.story import Story
    from tfos_cli.ui.progress import Renderer

__all__ = ("Follower", "Line", "Message", "Said", "StopSender")

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK_S = 1.0
_MOST_WAITING = 10_000
#: Beyond what the shim allows itself, before the follower takes things into its own hands.
_STOP_MARGIN_S = 15.0
#: From the result to the end of spark-submit.
_EXIT_S = 30.0
#: From the end of spark-submit to that of the shim, which may have a status to write.
_SHIM_END_S = 20.0
#: What the processes of a run get to end by themselves after it.
_GONE_S = 10.0


@dataclass(frozen=True, slots=True)
class Message:
    """A line of the driver's."""

    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of spark-submit's output."""

    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class _Connected:
    """The shim is on the channel."""


@dataclass(frozen=True, slots=True)
class _Disconnected:
    """The shim is gone."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class _Exited:
    code: int


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


_Item = Message | Line | _Connected | _Disconnected | Said | _Exited | _Signalled


class StopSender(Protocol):
    """A way to the driver."""

    def shut_down(self, reason: str) -> bool:
        """Ask the driver to end the job; False when nobody is there to hear it."""


class Follower:
    """One run. `follow` is called once, in the main thread.

    Args:
        choose_renderer: called once, when spark-submit has been started: what draws may take long to import.
    """

    def __init__(self, run: Run, launch: Launch, choose_renderer: Callable[[], Renderer]) -> None:
        self._run = run
        self._launch = launch
        self._choose_renderer = choose_renderer
        self._redactor = Redactor.of_environment(launch.secrets, launch.environment)
        # SimpleQueue, because its put may interrupt itself: signal handlers use it
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._status = run.status()
        self._story: Story
        self._process: SparkSubmit | None = None
        self._channel: StopSender | None = None
        self._log: OutputLog | None = None
        self._connected = False
        self._driver_started = False
        self._exit_code: int | None = None
        self._stop_reason = ""
        self._concluded = False
        self._deadline: float | None = None
        self._deadline_error: TfosError | None = None

    def follow(self) -> RunStatus:
        """Start spark-submit, show what happens, and return the finished status record; raises nothing of a run's failures."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._signals())
            stack.callback(self._abandon)
            beginning = self._begin()
            error = self._start_in(stack)
            self._tell(beginning)
            if error is None:
                try:
                    self._loop()
                    error = self._deadline_error
                except TfosError as exc:
                    error = exc
            self._clean_up()
            self._conclude(error)
            self._concluded = True
        self._story.end()
        return self._status

    # -- beginning --------------------------------------------------------------------------------------------------------

    def _begin(self) -> str:
        """Record that the run is followed, and its first event; the line of that."""
        status = self._status
        submitted = {"run_id": status.run_id, "name": status.name, "master": status.master, "run_folder": str(self._run.folder)}
        with self._writer() as record:
            record.update(follower=ProcessIdentity.of(os.getpid()))
            return record.line_of(event_line("submitted", submitted))

    def _start_in(self, stack: contextlib.ExitStack) -> TfosError | None:
        """Start spark-submit, or say why it could not be started."""
        try:
            require_reachable(self._status.master)
            self._log = OutputLog(self._run.driver_log, self._redactor)
            stack.callback(self._log.close)
            self._open_channel(stack)
            self._start()
        except TfosError as exc:
            return exc
        return None

    def _tell(self, beginning: str) -> None:
        """Show the first event; what comes from the driver waits in the queue. What shows is imported while the JVM starts."""
        from tfos_cli.story import Story

        self._story = Story(self._status, self._choose_renderer())
        self._handle_safely(Message(beginning))

    def _open_channel(self, stack: contextlib.ExitStack) -> None:
        """Listen for the driver, until the stack is closed."""
        self._channel = stack.enter_context(
            ChannelServer(
                self._run.channel_path,
                on_connected=self._heard,
                on_line=lambda line: self._inbox.put(Message(line)),
                on_closed=lambda: self._inbox.put(_Disconnected()),
                on_stranger=lambda why: self._inbox.put(Said(f"refused on the private channel of this run: {why}")),
                environ=self._launch.environment,
            )
        )

    def _heard(self) -> None:
        self._inbox.put(_Connected())

    def _start(self) -> None:
        self._process = SparkSubmit(
            self._launch.argv,
            environment=self._launch.environment,
            cwd=Path(self._launch.cwd) if self._launch.cwd else None,
            on_line=self._on_line,
            on_exit=lambda code: self._inbox.put(_Exited(code)),
        )
        limit = self._launch.start_timeout_s
        if limit is not None:
            sentence = f"Spark did not start the application on {self._status.master} within {limit:.0f} s"
            self._set_deadline(limit, SubmitError(sentence, f"Read the end of {self._run.driver_log}."))

    def _on_line(self, stream: Stream, text: str) -> None:
        """In a reading thread: hold spark-submit back when its output comes faster than a terminal takes it."""
        while self._inbox.qsize() > _MOST_WAITING and not self._concluded:
            time.sleep(0.01)
        self._inbox.put(Line(stream, text))

    # -- the loop ---------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Handle what comes until spark-submit and the shim have ended."""
        while not self._is_over():
            try:
                item = self._inbox.get(timeout=_TICK_S)
            except queue.Empty:
                self._story.tick()
            else:
                self._handle_safely(item)
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._kill()
                return
        self._deadline_error = None

    def _is_over(self) -> bool:
        return self._exit_code is not None and not self._connected

    def _handle_safely(self, item: _Item) -> None:
        """Handle it; when the reader of our output went away (as in `| head`), stop the run without a word."""
        try:
            self._handle(item)
        except BrokenPipeError:
            self._story.silence()
            self._inbox.put(_Signalled(signal.SIGPIPE))

    def _handle(self, item: _Item) -> None:
        match item:
            case Message(text):
                self._show(text)
            case Line(stream, text):
                clean = self._log.write(text) if self._log is not None else text
                self._story.take_output(stream, clean)
                self._took_line(item)
            case _Connected():
                self._connected = True
                if self._stop_reason:
                    self._ask_to_stop()
            case _Disconnected():
                self._connected = False
            case Said(text):
                self._story.say(text)
            case _Exited(code):
                self._exit_code = code
                self._submit_ended()
            case _Signalled(number):
                self._stop(signal.Signals(number).name)

    def _took_line(self, line: Line) -> None:
        """spark-submit said something, which is in its log."""

    def _show(self, line: str) -> None:
        """Show a line of the driver's, and draw the conclusions from its event."""
        event = self._story.take(line)
        if event is None:
            return
        if event.kind == "driver_started":
            self._driver_started = True
            if not self._stop_reason:
                self._deadline = self._deadline_error = None
        elif event.kind == "result":
            self._set_deadline(_EXIT_S, None)

    def _stop(self, name: str) -> None:
        """The first signal asks the shim to shut the cluster down, a second one kills."""
        if self._stop_reason:
            self._story.say("killing the run")
            self._deadline_error = InterruptedRunError(
                f"the run was killed by a second signal ({name}) before its cluster was down"
            )
            self._deadline = 0.0
            return
        self._stop_reason = name
        limit = STOP_TIMEOUT_S + self._launch.grace_s + _STOP_MARGIN_S
        self._set_deadline(limit, InterruptedRunError(f"the run was stopped by {name} and did not end within {limit:.0f} s"))
        self._story.say(f"{name}: shutting the cluster down; once more to kill it")
        if self._connected:
            self._ask_to_stop()
        else:
            self._end_early()

    def _end_early(self) -> None:
        """There is no job yet, so there is nothing to shut down: spark-submit ends by itself."""
        if self._process is not None:
            self._process.signal_group(signal.SIGTERM)

    def _submit_ended(self) -> None:
        """What the shim still has to say, it says soon."""
        self._set_deadline(_SHIM_END_S, None)

    def _ask_to_stop(self) -> None:
        if self._channel is not None:
            self._channel.shut_down(f"{self._stop_reason} on {socket.gethostname()}")

    def _set_deadline(self, seconds: float, error: TfosError | None) -> None:
        """Kill what is left after some seconds; the error says why the run ended then, None leaves it to the diagnosis."""
        self._deadline = time.monotonic() + seconds
        self._deadline_error = error

    # -- the end ----------------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """Whatever ended the follower early, nothing of the run goes on without it."""
        if not self._concluded:
            self._concluded = True
            self._kill()
            self._remove_scratch()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill_all(self._run.id)

    def _clean_up(self) -> None:
        """See to it that nothing of the run is left on this machine."""
        if self._process is not None:
            if not self._process.wait_gone(self._run.id, timeout=_GONE_S if self._deadline_error is None else 0.0):
                self._process.kill_all(self._run.id)
            self._process.close()
        self._drain()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        for name in self._launch.scratch:
            path = Path(name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _drain(self) -> None:
        """Take what still waits in the queue: the last lines of output are mostly those that say why."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._handle(self._inbox.get_nowait())

    def _conclude(self, error: TfosError | None) -> None:
        """The status record as the shim left it, or, when it left none, as far as it can be known from outside."""
        self._status = self._run.status()
        if self._status.is_finished:
            self._story.adopt(self._status)
            return
        from tfos_cli.diagnosis import Evidence, diagnose

        evidence = Evidence(
            status=self._status,
            driver_log=str(self._run.driver_log),
            error=error,
            stop_reason=self._stop_reason,
            driver_started=self._has_driver(),
            exit_code=self._exit_code,
            last_lines=self._log.last_lines() if self._log is not None else (),
            view=self._story.view,
        )
        result = diagnose(self._enquire(evidence))
        with self._writer() as record:
            self._show(record.event(result))
            record.update(state=RunState.FINISHED, ended=round(time.time(), 3), **asdict(result))
        self._status = self._run.status()

    def _has_driver(self) -> bool:
        # The record, because a driver that dies at once may be gone before its connection was taken.
        return self._driver_started or bool(self._status.application_id)

    def _enquire(self, evidence: Evidence) -> Evidence:
        """What else can be found out about an end that the driver did not explain."""
        return evidence

    def _writer(self) -> RecordWriter:
        return RecordWriter(self._run.folder, self._redactor)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in _STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._inbox.put(_Signalled(number))
