"""What is wrong with files that a node reads."""

from __future__ import annotations

from tfos_core.errors import TfosError

__all__ = ("DataError",)


class DataError(TfosError):
    """A file can not be read, does not fit the others, or holds what a tensor can not; the message names it."""
