"""Versions as numbers, for comparing."""

from __future__ import annotations

import re

__all__ = ("version_key",)


def version_key(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
