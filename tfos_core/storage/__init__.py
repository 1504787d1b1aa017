"""One layer over file systems: local paths, and through fsspec whatever has a scheme (`hdfs://`, `s3://`, ...).

TensorFlow 2.21 itself knows `file`, `ram` and `gs` only, so nodes read data and write models, checkpoints and event files through
this. Importing it imports no fsspec; that happens with the first path that needs it.
"""

from __future__ import annotations

from tfos_core.storage.errors import StorageError
from tfos_core.storage.interface import Entry, Storage
from tfos_core.storage.registry import storage_of
from tfos_core.storage.transfer import fetch, publish

__all__ = ("Entry", "Storage", "StorageError", "fetch", "publish", "storage_of")
