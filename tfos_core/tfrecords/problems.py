"""From damaged records to an error, a log line, or rows of a column."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tfos_core.tfrecords.errors import CorruptRecordError
from tfos_core.tfrecords.framing import Problem

__all__ = ("log_left_out", "raise_first", "sentence")

logger = logging.getLogger(__name__)
_LOGGED = 5


def sentence(problem: Problem, path: str) -> str:
    """Where, and what."""
    return f"{path}: the record at byte {problem.offset} can not be used: {problem.reason}"


def raise_first(problems: Sequence[Problem], path: str) -> None:
    """Raises:
    CorruptRecordError: there is a problem.
    """
    if problems:
        raise CorruptRecordError(
            sentence(problems[0], path),
            "Write the file again, correct the schema, or read with mode=PERMISSIVE, which leaves such records out.",
            path,
            problems[0].offset,
        )


def log_left_out(problems: Sequence[Problem], path: str) -> None:
    """A warning for each of the first few, and one with the count of all."""
    for problem in problems[:_LOGGED]:
        logger.warning("left out: %s", sentence(problem, path))
    if problems:
        logger.warning("%d records of %s were left out", len(problems), path)
