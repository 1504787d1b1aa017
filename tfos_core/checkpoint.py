"""What a program has learned so far, kept where a restarted job finds it.

    checkpoints = ctx.checkpoints("hdfs:///models/digits/checkpoints", model=model)
    done = checkpoints.restore()
    model.fit(data, initial_epoch=done, epochs=ctx.num_epochs, callbacks=[checkpoints.callback()])

A checkpoint is a folder that is complete or not there. It is written on this machine and then copied, so that it can lie wherever
`tfos_core.storage` reaches. Only the chief's counts, but all nodes have to call `save`, because reading a variable of
MultiWorkerMirroredStrategy may take all of them.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfos_core.errors import ConfigError
from tfos_core.json_text import parse_json
from tfos_core.storage.local import LocalStorage
from tfos_core.storage.registry import storage_of
from tfos_core.storage.transfer import fetch, publish

__all__ = ("Checkpoints",)

_NAME = "checkpoint-{number:06d}"
_STATE = "state"
_PROGRESS = "progress.json"


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where all nodes find them; made with the first one.
        objects: what is saved, by name: models, optimizers, variables, or anything else that `tf.train.Checkpoint` takes.
        keep: how many of the latest stay; 2 by default.
        is_chief: whether this node's checkpoints count.
        report: tells the driver how far the program has come.
    """

    def __init__(
        self, folder: str, objects: Mapping[str, Any], *, keep: int = 2, is_chief: bool, report: Callable[[Mapping[str, Any]], None]
    ) -> None:
        if not objects:
            raise ConfigError("checkpoints() was given nothing to save", "Name it: ctx.checkpoints(folder, model=model).")
        if keep < 1:
            raise ConfigError(f"keep is {keep}", "Use 1 or more.")
        self._storage = storage_of(folder)
        self._folder = self._storage.absolute(folder)
        self._objects = dict(objects)
        self._keep = keep
        self._is_chief = is_chief
        self._report = report
        self._fetched = contextlib.ExitStack()
        self._step: int | None = None

    @property
    def folder(self) -> str:
        """Where they lie: one folder for each."""
        return self._folder

    @property
    def step(self) -> int | None:
        """The step that the restored checkpoint was saved with."""
        return self._step

    def restore(self) -> int:
        """Load the latest checkpoint of this run; how many epochs it holds: 0 when there is none, or when it was saved without.

        Call it after the objects were made and before the first step.

        Raises:
            OSError: it can not be read.
        """
        found = self._names()
        if not found:
            return 0
        import tensorflow as tf

        path = posixpath.join(self._folder, found[-1])
        if not isinstance(self._storage, LocalStorage):
            # Values of variables that are made later are read then, so the copy stays as long as this object.
            copy = self._fetched.enter_context(tempfile.TemporaryDirectory(prefix="tfos-checkpoint-"))
            path = fetch(path, Path(copy) / found[-1])
        progress = parse_json((Path(path) / _PROGRESS).read_text(encoding="utf-8"))
        status = tf.train.Checkpoint(**self._objects).read(posixpath.join(path, _STATE))
        status.assert_existing_objects_matched()
        status.expect_partial()
        self._step = progress["step"]
        return int(progress["epoch"] or 0)

    def save(self, epoch: int | None = None, *, step: int | None = None) -> None:
        """Keep what the objects hold; every node has to call it at the same place.

        Args:
            epoch: how many epochs are done; a restarted job is fed from this one on. Without it (a loop over `next_batch`) it is
                fed from the first epoch that had not been taken whole.
            step: how many steps are done, for the program and to notice that a restarted job comes no further.

        Raises:
            OSError: it can not be written.
        """
        import tensorflow as tf

        with tempfile.TemporaryDirectory(prefix="tfos-checkpoint-") as scratch:
            tf.train.Checkpoint(**self._objects).write(posixpath.join(scratch, _STATE))
            if not self._is_chief:
                return
            (Path(scratch) / _PROGRESS).write_text(json.dumps({"epoch": epoch, "step": step}), encoding="utf-8")
            names = self._names()
            number = int(names[-1].rpartition("-")[2]) + 1 if names else 1
            publish(scratch, posixpath.join(self._folder, _NAME.format(number=number)))
        self._report({"op": "node.checkpoint", "epoch": epoch, "step": step})
        for name in names[: max(0, len(names) + 1 - self._keep)]:
            # A reader may be at it; the next save tries again.
            with contextlib.suppress(OSError):
                self._storage.remove(posixpath.join(self._folder, name))

    def callback(self, every: int = 1) -> Any:
        """A callback for `model.fit` that saves at the end of every epoch, or of every `every`-th one."""
        import tensorflow as tf

        return tf.keras.callbacks.LambdaCallback(on_epoch_end=_AfterEpoch(self, every))

    def _names(self) -> list[str]:
        """Of the complete checkpoints, the latest one last."""
        if not self._storage.exists(self._folder):
            return []
        folders = {entry.below.partition("/")[0] for entry in self._storage.files_below(self._folder)}
        return sorted(name for name in folders if name.startswith(_NAME.partition("{")[0]))


class _AfterEpoch:
    def __init__(self, checkpoints: Checkpoints, every: int) -> None:
        self._checkpoints = checkpoints
        self._every = max(1, every)

    def __call__(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self._every == 0:
            self._checkpoints.save(epoch + 1)
