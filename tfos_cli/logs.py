"""Logging of the command line, configured once: what libraries log goes to stderr."""

from __future__ import annotations

import logging

from tfos_cli.ui.console import Console, Verbosity

__all__ = ("configure",)

_LEVELS = {
    Verbosity.QUIET: logging.ERROR,
    Verbosity.NORMAL: logging.WARNING,
    Verbosity.VERBOSE: logging.INFO,
    Verbosity.DEBUG: logging.DEBUG,
}


class ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the stderr of a console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.stderr)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))


def configure(console: Console) -> None:
    """Send the log of our two packages to the console's stderr, as much as its verbosity says.

    The root logger stays as it is: what other libraries log is theirs. Calling it again replaces the handler.
    """
    for name in ("tfos_cli", "tfos_core"):
        logger = logging.getLogger(name)
        for handler in [h for h in logger.handlers if isinstance(h, ConsoleHandler)]:
            logger.removeHandler(handler)
        logger.addHandler(ConsoleHandler(console))
        logger.setLevel(_LEVELS[console.verbosity])
        logger.propagate = False
