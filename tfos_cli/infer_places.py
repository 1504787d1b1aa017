"""Whether the model of an inference is there and its output is not, as far as this machine can tell before anything starts.

The driver looks again, on every file system; this only spares the user the start of Spark.
"""

from __future__ import annotations

import os
from pathlib import Path

from tfos_cli.spec.loader import ResolvedSpec
from tfos_cli.spec.places import below
from tfos_cli.submit.properties import is_on_this_machine
from tfos_core.errors import ConfigError
from tfos_core.paths import has_scheme, local_path

__all__ = ("require_places",)


def require_places(resolved: ResolvedSpec) -> None:
    """Refuse a job that can only fail.

    Raises:
        ConfigError: a local model does not exist, or a local output exists and its mode is `error`.
    """
    infer = resolved.spec.infer
    if infer is None or not is_on_this_machine(resolved.spec):
        return
    if infer.export_dir is not None:
        model = _local(resolved, infer.export_dir)
        if model is not None and not model.exists():
            hint = "Train it first, or name another one: --set infer.export_dir=PATH."
            raise ConfigError(f"there is no model at {model} (infer.export_dir, {resolved.place_of('infer.export_dir')})", hint)
    if infer.output.mode == "error":
        for key, path in (("infer.output.path", infer.output.path), ("infer.bad_rows", infer.bad_rows)):
            place = _local(resolved, path) if path is not None else None
            if place is not None and os.path.lexists(place):
                raise ConfigError(
                    f"the output {place} exists ({key}, {resolved.place_of(key)})",
                    "Remove it, or set infer.output.mode to overwrite or append.",
                )


def _local(resolved: ResolvedSpec, path: str) -> Path | None:
    if path.startswith("file:"):
        return Path(local_path(path))
    return None if has_scheme(path) else below(resolved.folder, path)
