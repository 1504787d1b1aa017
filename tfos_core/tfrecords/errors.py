"""What is wrong with a file of records."""

from __future__ import annotations

from tfos_core.errors import TfosError

__all__ = ("CorruptRecordError",)


class CorruptRecordError(TfosError):
    """A record is damaged, cut off, or does not fit the schema; `path` and `offset` (bytes, before compression) name it."""

    def __init__(self, message: str = "", hint: str | None = None, path: str = "", offset: int = -1) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, path, offset)
        self.path = path
        self.offset = offset
