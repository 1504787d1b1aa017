"""Where the model lies, and how it comes to executors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ("ModelRef",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model for a Python worker.

    Attributes:
        shown: what the user calls it.
        path: the folder, as the executor sees it.
        fingerprint: changes with the model's files, so that a worker does not go on with one that was replaced.
        tags: of the graph.
        signature: its key.
    """

    shown: str
    path: str
    fingerprint: str
    tags: tuple[str, ...]
    signature: str

    def local_path(self) -> Path:
        """The folder on this host."""
        return Path(self.path)
