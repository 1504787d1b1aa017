"""Saving models so that a reader sees a whole export or none."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfos_core.paths import local_path

__all__ = ("export_saved_model",)


def export_saved_model(model: Any, export_dir: str, *, keep: bool, options: Mapping[str, Any] | None = None) -> str | None:
    """Save to a hidden folder beside `export_dir` and rename; with `keep` False the folder is removed again.

    Args:
        model: what `_save` understands.
        export_dir: a local path or `file:` URI; its parent is created.
        keep: whether this process is the one whose export counts.

    Returns:
        The final path, or None when nothing was kept.

    Raises:
        ConfigError: `export_dir` is not on a local file system.
    """
    target = Path(local_path(export_dir))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        _save(model, str(temporary), dict(options or {}))
        if not keep:
            return None
        _replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(target)


def _save(model: Any, path: str, options: dict[str, Any]) -> None:
    """Keras models of either Keras know how to export a serving signature; anything else is a `tf.Module` or trackable."""
    export = getattr(model, "export", None)
    if callable(export) and not options:
        export(path)
        return
    import tensorflow as tf

    tf.saved_model.save(model, path, **options)


def _replace(temporary: Path, target: Path) -> None:
    """A folder can not be renamed over a folder that holds something, so the old export steps aside first."""
    if not os.path.lexists(target):
        temporary.rename(target)
        return
    old = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.old"
    target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        old.rename(target)
        raise
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)
