"""One object that owns the streams: what goes where, in colour or not, and how much of it.

stdout carries results and nothing else; everything for people's eyes goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

__all__ = ("Console", "Style", "Verbosity")


class Verbosity(IntEnum):
    """How much goes to stderr. Errors and warnings always do."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1
    DEBUG = 2


class Style:
    """Escape codes of the few styles in use; rich is for the live view only, importing it costs 0.1 s."""

    BOLD = "1"
    DIM = "2"
    ERROR = "1;31"
    WARNING = "33"
    SUCCESS = "32"
    HINT = "36"


class Console:
    """The streams of one command.

    Args:
        stdout, stderr: default to the process's own, looked up at every use, so that a test may replace them.
        environ: `NO_COLOR`, `FORCE_COLOR` and `TERM` are read from it; defaults to the process's.
    """

    def __init__(
        self, *, stdout: TextIO | None = None, stderr: TextIO | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._environ = os.environ if environ is None else environ
        self.json = False
        self.debug = False
        self.verbosity = Verbosity.NORMAL

    @property
    def stdout(self) -> TextIO:
        """Where results go."""
        return self._stdout or sys.stdout

    @property
    def stderr(self) -> TextIO:
        """Where everything else goes."""
        return self._stderr or sys.stderr

    @property
    def is_live(self) -> bool:
        """Whether stderr is a terminal on which a view may redraw itself."""
        return _is_terminal(self.stderr) and self._environ.get("TERM") != "dumb"

    def has_colour(self, stream: TextIO) -> bool:
        """Whether escape codes belong on a stream: https://no-color.org, then FORCE_COLOR, then whether it is a terminal."""
        if self._environ.get("NO_COLOR"):
            return False
        if self._environ.get("FORCE_COLOR"):
            return True
        return _is_terminal(stream) and self._environ.get("TERM") != "dumb"

    def styled(self, text: str, style: str, *, stream: TextIO | None = None) -> str:
        """The text with escape codes when the stream (stderr by default) takes them."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.has_colour(stream or self.stderr) else text

    def result(self, text: str) -> None:
        """A line of the result, on stdout, at once."""
        self.stdout.write(text + "\n")
        self.stdout.flush()

    def result_json(self, value: Any) -> None:
        """One JSON document on one line of stdout."""
        self.result(json.dumps(value, default=str))

    def note(self, text: str = "") -> None:
        """A line on stderr, not when quiet."""
        if self.verbosity > Verbosity.QUIET:
            self._say(text)

    def detail(self, text: str) -> None:
        """A line on stderr for those who asked for more (`-v`)."""
        if self.verbosity >= Verbosity.VERBOSE:
            self._say(self.styled(text, Style.DIM))

    def warning(self, text: str, hint: str | None = None) -> None:
        """A warning on stderr, with what to do about it."""
        self._say(f"{self.styled('warning:', Style.WARNING)} {text}")
        if hint:
            self._say(self.hint_text(hint))

    def error(self, text: str, hint: str | None = None) -> None:
        """An error on stderr, with what to do next."""
        self._say(f"{self.styled('error:', Style.ERROR)} {text}")
        if hint:
            self._say(self.hint_text(hint))

    def hint_text(self, hint: str) -> str:
        """A hint as it stands below the sentence that it belongs to."""
        indented = hint.replace("\n", "\n      ")
        return f"{self.styled('hint:', Style.HINT)} {indented}"

    def rich(self) -> RichConsole:
        """A rich console on stderr for the live view."""
        from rich.console import Console as RichConsole

        return RichConsole(file=self.stderr, no_color=not self.has_colour(self.stderr), highlight=False)

    def _say(self, text: str) -> None:
        self.stderr.write(text + "\n")
        self.stderr.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
