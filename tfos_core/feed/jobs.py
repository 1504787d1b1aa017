"""Feed jobs on the driver's SparkContext: tags, local properties, and what went wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfos_core.errors import FeedError

__all__ = ("job_tag", "local_property", "spark_error")


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
