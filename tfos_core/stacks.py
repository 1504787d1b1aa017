"""Where a process is when it is stuck: `faulthandler` writes the Python stacks of all its threads when a signal asks for them.

That needs neither the interpreter lock nor a thread that listens, so it also works in a process that hangs in native code. Both
ends are here: `offer_stacks` is for the process, `StackPipe` for its supervisor.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ("ANSWER_S", "ASK_SIGNAL", "Frame", "StackPipe", "Stacks", "offer_stacks", "parse_stacks")

#: Programs of users have their own ideas about SIGUSR1 and SIGUSR2; nobody takes this one, where there are real-time signals.
ASK_SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2

#: A process answers at once unless it is stopped or the host is starved, in seconds.
ANSWER_S = 3.0
#: Nothing more came for so long after the main thread's stack: that was all, in seconds.
_QUIET_S = 0.1
_CHUNK_BYTES = 64 * 1024
_LONGEST_BYTES = 1024 * 1024

_HEAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)[^\n]*:$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_GREETING = re.compile(r"^main (0x[0-9a-f]+)\n")
#: Frames in such files say less than the one that called them.
_NOT_THE_PROGRAM = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|/tfos_core/|^<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A call that has not returned."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f'  File "{self.file}", line {self.line}, in {self.function}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What a process answered: the main thread's frames, outermost first as in a traceback, and the whole text."""

    main: tuple[Frame, ...] = ()
    text: str = ""

    @property
    def main_text(self) -> str:
        """The main thread's stack as text; empty when it is not known."""
        return "\n".join(["Main thread (most recent call last):", *map(str, self.main)]) if self.main else ""

    @property
    def place(self) -> str:
        """Where the program itself is, as `train_step (app.py:17)`; empty when that is not known."""
        own = [frame for frame in self.main if not _NOT_THE_PROGRAM.search(frame.file)] or list(self.main)
        return f"{own[-1].function} ({os.path.basename(own[-1].file)}:{own[-1].line})" if own else ""  # noqa: PTH119 - of another host


def parse_stacks(text: str, main: str) -> Stacks:
    """Find the main thread in what `faulthandler` wrote.

    Args:
        main: its id as `faulthandler` writes it, `0x00007f...`.
    """
    heads = list(_HEAD.finditer(text))
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=False):
        if int(head[1], 16) == int(main, 16):
            frames = [Frame(file=file, line=int(line), function=name) for file, line, name in _FRAME.findall(text, head.end(), end)]
            return Stacks(main=tuple(reversed(frames)), text=text)
    return Stacks(text=text)


def offer_stacks(fd: int) -> None:
    """In the process, from its main thread: answer `ASK_SIGNAL` on this file descriptor from now on."""
    os.set_inheritable(fd, False)
    faulthandler.register(ASK_SIGNAL, file=fd, all_threads=True)
    os.write(fd, f"main {threading.get_ident():#x}\n".encode())


class StackPipe:
    """The supervisor's end. `close` may be called twice.

    Args:
        fd: the reading end of a pipe whose other end `offer_stacks` got; this object closes it.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._main = ""

    def ask(self, send_signal: Callable[[int], None], *, answer_s: float = ANSWER_S) -> Stacks:
        """The stacks of the process; empty when it does not answer within `answer_s` seconds.

        A process that has not offered them yet, or has closed its end, is not asked: the signal would kill it.
        """
        if self._fd is None or not self._is_offered():
            return Stacks()
        send_signal(ASK_SIGNAL)
        return parse_stacks(self._collect(answer_s).decode(errors="replace"), self._main)

    def close(self) -> None:
        """Close the pipe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _is_offered(self) -> bool:
        """Whether the process has said who its main thread is, and still has its end; what else is in the pipe is old."""
        data = b""
        while (chunk := self._read()) is not None:
            if not chunk:
                return False
            data += chunk
        if found := _GREETING.match(data.decode(errors="replace")):
            self._main = found[1]
        return bool(self._main)

    def _collect(self, answer_s: float) -> bytes:
        data = b""
        until = time.monotonic() + answer_s
        while len(data) < _LONGEST_BYTES and (left := until - time.monotonic()) > 0:
            is_whole = bool(parse_stacks(data.decode(errors="replace"), self._main).main)
            if not self._wait(min(left, _QUIET_S) if is_whole else left):
                break
            chunk = self._read()
            if chunk == b"":
                break
            data += chunk or b""
        return data

    def _wait(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._fd or 0, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def _read(self) -> bytes | None:
        """What is there; None when there is nothing, empty at the end."""
        assert self._fd is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(BlockingIOError):
            return os.read(self._fd, _CHUNK_BYTES)
        return None
