"""What goes wrong with storage that is not on this machine."""

from __future__ import annotations

from tfos_core.errors import TfosError
from tfos_core.exit_codes import ExitCode

__all__ = ("StorageError",)


class StorageError(TfosError, OSError):
    """A file system did not do what it was asked for; the message names the path."""

    run_exit_code = ExitCode.INFRASTRUCTURE
