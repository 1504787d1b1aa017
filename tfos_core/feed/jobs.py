"""Feed jobs on the driver's SparkContext: tags, local properties, and what went wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfos_core.errors import ConfigError, FeedError

__all__ = ("check_numbers", "job_tag", "local_property", "spark_error")


def check_numbers(num_epochs: int, feed_timeout: float) -> None:
    """Refuse what can not be fed.

    Raises:
        ConfigError: a number is out of its range.
    """
    if num_epochs < 0:
        raise ConfigError(f"num_epochs is {num_epochs}", "Use 1 or more; 0 means one epoch.")
    if feed_timeout <= 0:
        raise ConfigError(f"feed_timeout is {feed_timeout}", "Use a number of seconds above 0.")


def spark_error(exc: BaseException) -> FeedError:
    """One sentence of a failed Spark job; the whole of it is the cause."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    python = [
        line for line in lines if not line.startswith(("at ", "File ", "Traceback", "...")) and "Error" in line.partition(":")[0]
    ]
    reason = python[-1] if python else (lines[0] if lines else type(exc).__name__)
    return FeedError(f"Spark could not compute the rows to feed: {reason[:500]}", "The executor's own log has the whole traceback.")


@contextlib.contextmanager
def job_tag(sc: Any, tag: str) -> Iterator[None]:
    """Jobs of this thread can be cancelled by `tag`."""
    # Tags, not job groups: a group would overwrite the user's.
    sc.addJobTag(tag)
    try:
        yield
    finally:
        sc.removeJobTag(tag)


@contextlib.contextmanager
def local_property(sc: Any, name: str, value: str) -> Iterator[None]:
    """Tasks of this thread's jobs can read `name`."""
    sc.setLocalProperty(name, value)
    try:
        yield
    finally:
        sc.setLocalProperty(name, None)
