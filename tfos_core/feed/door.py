"""A fed node's listening socket, from before its process starts until after it has ended; the supervisor keeps it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfos_core.errors import ConfigError, TfosError
from tfos_core.feed import rendezvous
from tfos_core.feed.last_word import leave_word
from tfos_core.feed.progress import offer_memory
from tfos_core.feed.refusal import Refusal, Uplink
from tfos_core.processes import pid_namespace

__all__ = ("FeedDoor",)


class FeedDoor:
    """Opens the executor's folder for one node, and takes over from the node's process when that has ended.

    Raises:
        ConfigError: the executor serves another node; two would share its rows.
        FeedError: the folder or the socket can not be made.
    """

    def __init__(self, *, node: str, generation: str, environ: Mapping[str, str]) -> None:
        self._node = node
        self._generation = generation
        self._environ = environ
        self._refusal: Refusal | None = None
        rendezvous.sweep(environ)
        _refuse_company(rendezvous.executor_folder(environ), node)
        self._folder = rendezvous.create_folder(environ)
        with contextlib.ExitStack() as undo:
            undo.callback(rendezvous.remove_folder, self._folder)
            self._listener = undo.enter_context(rendezvous.listen(self._folder))
            self._progress = offer_memory(Path(self.progress_path))
            undo.callback(self._close_progress)
            rendezvous.Descriptor(
                generation=generation,
                node=node,
                socket=str(self._folder / "node.sock"),
                progress=self.progress_path,
                supervisor_pid=os.getpid(),
                supervisor_started=rendezvous.process_start_time(os.getpid()),
                pid_namespace=pid_namespace("self"),
            ).write(self._folder)
            undo.pop_all()

    @property
    def progress_path(self) -> str:
        """Where the node's process says when it last consumed a row: memory of this process, where there is such a thing."""
        return str(self._folder / "progress")

    def fileno(self) -> int:
        """The listening socket, for the node's process to inherit."""
        return self._listener.fileno()

    def refuse(self, error: Mapping[str, Any] | None, uplink: Uplink) -> None:
        """Answer every feed task with the error, or, without one, that the node has ended."""
        self._refusal = Refusal(self._listener, node=self._node, generation=self._generation, uplink=uplink)
        if error is None:
            self._refusal.start("closed", None)
        else:
            self._refusal.start("failed", error)

    def leave_word(self, reason: str) -> None:
        """Tell tasks that come when nobody is here any more why that is so."""
        leave_word(self._environ, self._generation, self._node, reason)

    def close(self) -> None:
        """Stop answering and remove the folder."""
        if self._refusal is not None:
            self._refusal.stop()
        self._listener.close()
        self._close_progress()
        rendezvous.remove_folder(self._folder)

    def _close_progress(self) -> None:
        if self._progress is not None:
            os.close(self._progress)
            self._progress = None


def _refuse_company(folder: Path, node: str) -> None:
    try:
        other = rendezvous.Descriptor.read(folder)
    except (TfosError, FileNotFoundError):
        return
    if other.is_alive():
        raise ConfigError(
            f"the executor already serves {other.node} of cluster {other.generation}, so {node} can not be there",
            "Give each node an executor of its own (spark.task.cpus = spark.executor.cores), and shut down other clusters first.",
        )
