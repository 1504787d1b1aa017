"""Output that a reader sees as a whole or not at all.

Spark writes into a hidden folder beside the target, which takes the target's place by renaming when all rows are counted. On
object stores, which have no renaming, Hadoop copies instead.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Literal

from tfos_core.errors import ConfigError, FeedError
from tfos_core.saved_model.hadoop import HadoopPath
from tfos_core.spark_errors import reason_of

__all__ = ("OutputFolder",)

logger = logging.getLogger(__name__)
_SUCCESS = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """Where one DataFrame goes. `key` is what the spec calls it."""

    target: HadoopPath
    staging: HadoopPath
    mode: Literal["error", "overwrite", "append"]
    key: str

    @classmethod
    def open(cls, sc: Any, path: str, *, mode: Literal["error", "overwrite", "append"], key: str, run_id: str) -> OutputFolder:
        """Look at the target, write nothing.

        Raises:
            ConfigError: it exists and must not, or it is no folder.
        """
        target = HadoopPath.of(sc, path.rstrip("/") or path)
        folder = cls(target, target.parent.child(f".{target.name}.{run_id}"), mode, key)
        folder.check()
        return folder

    def check(self) -> None:
        """Refuse a target that is in the way.

        Raises:
            ConfigError: as `open`.
        """
        if not self.target.exists():
            return
        if self.mode == "error":
            raise ConfigError(
                f"the output {self.target} exists ({self.key})", "Remove it, or set infer.output.mode to overwrite or append."
            )
        if not self.target.is_folder():
            raise ConfigError(f"the output {self.target} is a file ({self.key})", "Name a folder.")

    def commit(self) -> None:
        """Let what was written take its place.

        Raises:
            ConfigError: something has taken the place meanwhile.
            FeedError: it could not be moved; then nothing has changed.
        """
        self.check()
        try:
            if not self.target.exists():
                self.target.parent.make_folder()
                self.staging.rename(self.target)
            elif self.mode == "overwrite":
                self._replace()
            else:
                self._append()
        except OSError as exc:
            raise FeedError(f"the output could not be put in its place: {exc}", "Check permissions and space there.") from exc
        except Exception as exc:
            raise FeedError(f"the output could not be put in its place: {reason_of(exc)}", "Check permissions and space.") from exc

    def discard(self) -> None:
        """Remove what was written and not committed; never raises."""
        try:
            self.staging.remove()
        except Exception:
            logger.warning("%s could not be removed", self.staging, exc_info=True)

    def _replace(self) -> None:
        old = self.target.parent.child(f"{self.staging.name}.old")
        self.target.rename(old)
        try:
            self.staging.rename(self.target)
        except Exception:
            old.rename(self.target)
            raise
        with contextlib.suppress(Exception):
            old.remove()

    def _append(self) -> None:
        """Files move one by one; meanwhile the folder does not say that it is complete, and a failure takes them back."""
        marker = self.target.child(_SUCCESS)
        was_complete = marker.exists()
        marker.remove()
        moved: list[HadoopPath] = []
        try:
            for name in self.staging.files():
                place = self.target.child(name)
                if name.startswith("_") and (name == _SUCCESS or place.exists()):
                    continue
                place.parent.make_folder()
                self.staging.child(name).rename(place)
                moved.append(place)
        except Exception:
            for place in moved:
                place.remove()
            if was_complete:
                marker.touch()
            raise
        marker.touch()
        self.discard()
