"""The record through the file systems of the driver's own JVM: it has their client, and on a secure cluster the tokens for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tfos_core.errors import ConfigError, EnvironmentCheckError
from tfos_core.spark_errors import reason_of
from tfos_core.storage import StorageError, storage_of
from tfos_core.storage.local import LocalStorage
from tfos_core.uplink.folder import RecordFolder, StorageFolder, hidden_name

__all__ = ("HadoopFolder", "open_folder")

_PRIVATE = "700"

T = TypeVar("T")


class HadoopFolder:
    """A `RecordFolder`; `jvm` is py4j's view of the driver's JVM, `conf` its Hadoop configuration.

    Raises:
        StorageError: no file system of the JVM is for this URL, or it can not be reached.
    """

    def __init__(self, jvm: Any, conf: Any, url: str) -> None:
        self.url = url
        self._fs_package = jvm.org.apache.hadoop.fs
        self._streams = jvm.org.apache.commons.io.IOUtils
        self._path = self._call(lambda: self._fs_package.Path(url))
        self._filesystem = self._call(lambda: self._path.getFileSystem(conf))

    def make(self) -> None:
        def make() -> None:
            permission = self._fs_package.permission.FsPermission(_PRIVATE)
            self._filesystem.mkdirs(self._path, permission)
            # mkdirs applies the umask, and leaves a folder alone that is there.
            self._filesystem.setPermission(self._path, permission)

        self._call(make)

    def put(self, name: str, data: bytes) -> None:
        temporary, target = self._below(hidden_name(name)), self._below(name)

        def put() -> None:
            stream = self._filesystem.create(temporary, True)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            # Its rename replaces nothing. For a moment there is no file then: readers take that for "not yet".
            self._filesystem.delete(target, False)
            if not self._filesystem.rename(temporary, target):
                raise OSError(f"{temporary} could not be renamed to {name}")

        self._call(put)

    def get(self, name: str) -> bytes | None:
        path = self._below(name)

        def get() -> bytes | None:
            if not self._filesystem.exists(path):
                return None
            stream = self._filesystem.open(path)
            try:
                return bytes(self._streams.toByteArray(stream))
            finally:
                stream.close()

        return self._call(get)

    def names(self) -> list[str]:
        def names() -> list[str]:
            if not self._filesystem.exists(self._path):
                return []
            found = (str(status.getPath().getName()) for status in self._filesystem.listStatus(self._path))
            return sorted(name for name in found if not name.startswith("."))

        return self._call(names)

    def _below(self, name: str) -> Any:
        return self._call(lambda: self._fs_package.Path(self._path, name))

    def _call(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError:
            raise
        except Exception as exc:
            raise StorageError(f"{self.url}: {reason_of(exc)}", "Can the driver reach it, and write there?") from exc


def open_folder(url: str, jvm: Callable[[], tuple[Any, Any]]) -> RecordFolder:
    """The record as the driver reaches it: plain files, else through the JVM, else through fsspec for what the JVM does not know.

    Args:
        jvm: gives the JVM and its Hadoop configuration; called only when they are needed.

    Raises:
        StorageError: none of them reaches it; says what the JVM said.
    """
    if isinstance(storage := _local(url), LocalStorage):
        return StorageFolder(url, storage)
    try:
        return HadoopFolder(*jvm(), url)
    except OSError as exc:
        try:
            return StorageFolder(url)
        except (ConfigError, EnvironmentCheckError):
            raise exc from None


def _local(url: str) -> Any:
    return storage_of(url) if "://" not in url or url.startswith("file:") else None
