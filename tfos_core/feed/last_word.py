"""Why a node was stopped, for tasks that come to its executor later; standard library only.

A cluster that fails stops all its nodes, and they take their sockets and folders with them. Spark tries a task of an inference four
times, on any executor, and shows the last error: without this it would be that nobody is there. The note lies in the executor's own
scratch, which Spark removes; an application that runs many clusters leaves those of the latest.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from tfos_core.errors import FeedError
from tfos_core.json_text import parse_json
from tfos_core.private_files import write_private

__all__ = ("leave_word", "word_of")

#: Notes that an executor keeps. A task that asks is one of a query that was begun with its cluster, so it is seldom late by more.
_KEPT = 8
_PREFIX, _SUFFIX = "tfos-stopped-", ".json"


def leave_word(environ: Mapping[str, str], generation: str, node: str, reason: str) -> None:
    """Note why a node of this cluster is stopped; a scratch that can not be written is no reason to go on."""
    path = _path(environ, generation)
    if path is not None:
        with contextlib.suppress(OSError):
            write_private(path, json.dumps({"node": node, "reason": reason}))
            others = {note: note.stat().st_mtime_ns for note in path.parent.glob(f"{_PREFIX}*{_SUFFIX}") if note != path}
            for note in sorted(others, key=others.__getitem__)[: 1 - _KEPT]:
                note.unlink(missing_ok=True)


def word_of(environ: Mapping[str, str], generation: str) -> FeedError | None:
    """What the node of this executor and cluster was stopped for, None when it was not."""
    path = _path(environ, generation)
    try:
        found = parse_json(path.read_text(encoding="utf-8")) if path is not None else None
        return None if found is None else FeedError(f"the node {found['node']} was stopped: {found['reason']}", None, found["node"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(environ: Mapping[str, str], generation: str) -> Path | None:
    folder = environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return Path(folder) / f"{_PREFIX}{generation}{_SUFFIX}" if folder and generation else None
