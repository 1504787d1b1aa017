"""Paths of a spec on this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ("below",)


def below(folder: Path, text: str) -> Path:
    """A path that is relative to `folder`, where `~` is a home folder; `~nobody` of no known user is a plain name."""
    # Path.expanduser raises RuntimeError for a user that is not known.
    return folder / os.path.expanduser(text)  # noqa: PTH111
