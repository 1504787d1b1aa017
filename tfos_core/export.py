"""Saving models so that a reader sees a whole export or none."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfos_core.paths import has_scheme, local_path
from tfos_core.storage import publish, storage_of

__all__ = ("export_saved_model",)


def export_saved_model(model: Any, export_dir: str, *, keep: bool, options: Mapping[str, Any] | None = None) -> str | None:
    """Save to a hidden folder beside `export_dir` and rename; with `keep` False the folder is removed again.

    Args:
        model: what `_save` understands.
        export_dir: a path or URL; its parent is created.
        keep: whether this process is the one whose export counts.

    Returns:
        The final path, or None when nothing was kept.

    Raises:
        ConfigError: there is no file system for `export_dir`.
        OSError: it can not be written.
    """
    if has_scheme(export_dir) and not export_dir.startswith("file:"):
        return _export_elsewhere(model, export_dir, keep=keep, options=dict(options or {}))
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


def _export_elsewhere(model: Any, export_dir: str, *, keep: bool, options: dict[str, Any]) -> str | None:
    """TensorFlow writes to this machine; the whole of it is copied then."""
    # Found out before the work of saving.
    storage_of(export_dir)
    with tempfile.TemporaryDirectory(prefix="tfos-export-") as scratch:
        saved = str(Path(scratch) / "model")
        _save(model, saved, options)
        return publish(saved, export_dir) if keep else None


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
