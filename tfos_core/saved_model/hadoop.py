"""Files through the file systems that Spark itself uses: what Spark can read and write needs nothing else on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfos_core.errors import ConfigError
from tfos_core.spark_errors import reason_of

__all__ = ("HadoopPath",)


@dataclass(frozen=True, slots=True)
class HadoopPath:
    """One path; `_jvm` is py4j's view of the driver's JVM."""

    _jvm: Any
    _conf: Any
    _path: Any
    _filesystem: Any

    @classmethod
    def of(cls, sc: Any, path: str) -> HadoopPath:
        """The path on its file system; one without a scheme is on Spark's default file system.

        Raises:
            ConfigError: no file system has that scheme, or it can not be reached.
        """
        conf = sc._jsc.hadoopConfiguration()
        try:
            made = sc._jvm.org.apache.hadoop.fs.Path(path)
            filesystem = made.getFileSystem(conf)
            return cls(sc._jvm, conf, filesystem.makeQualified(made), filesystem)
        except Exception as exc:
            hint = "Check the path and Spark's settings for it."
            raise ConfigError(f"{path!r} can not be reached: {reason_of(exc)}", hint) from exc

    def __str__(self) -> str:
        # Hadoop prints one slash, which few others take for a scheme.
        text = str(self._path.toString())
        return f"file://{text.removeprefix('file:')}" if text.startswith("file:/") and not text.startswith("file://") else text

    @property
    def name(self) -> str:
        """The last part."""
        return str(self._path.getName())

    @property
    def parent(self) -> HadoopPath:
        """The folder that it is in."""
        return HadoopPath(self._jvm, self._conf, self._path.getParent(), self._filesystem)

    def child(self, name: str) -> HadoopPath:
        """Something below it."""
        return HadoopPath(self._jvm, self._conf, self._jvm.org.apache.hadoop.fs.Path(self._path, name), self._filesystem)

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._filesystem.exists(self._path))

    def is_folder(self) -> bool:
        """Whether it is there and a folder."""
        return self.exists() and bool(self._filesystem.getFileStatus(self._path).isDirectory())

    def children(self) -> list[HadoopPath]:
        """What is directly below it."""
        found = self._filesystem.listStatus(self._path)
        return [HadoopPath(self._jvm, self._conf, one.getPath(), self._filesystem) for one in found]

    def files(self) -> list[str]:
        """Files below it at any depth, relative to it."""
        found = self._filesystem.listFiles(self._path, True)
        prefix = self._path.toUri().getPath().rstrip("/") + "/"
        names = []
        while found.hasNext():
            names.append(str(found.next().getPath().toUri().getPath()).removeprefix(prefix))
        return sorted(names)

    def make_folder(self) -> None:
        """Make it and those above it."""
        self._filesystem.mkdirs(self._path)

    def rename(self, target: HadoopPath) -> None:
        """Move it to a path that is not there yet.

        Raises:
            OSError: it was not moved.
        """
        if target.exists() or not self._filesystem.rename(self._path, target._path):
            raise OSError(f"{self} could not be moved to {target}")

    def remove(self) -> None:
        """Remove it and everything below; nothing happens when it is not there."""
        self._filesystem.delete(self._path, True)

    def touch(self) -> None:
        """Make an empty file."""
        self._filesystem.create(self._path, True).close()

    def version(self) -> str | None:
        """Sizes and times of everything below, None when nothing is there."""
        if not self.exists():
            return None
        status = self._filesystem.getFileStatus(self._path)
        if not status.isDirectory():
            return f"{status.getLen()} {status.getModificationTime()}"
        found = self._filesystem.listFiles(self._path, True)
        lines = []
        while found.hasNext():
            one = found.next()
            lines.append(f"{one.getPath().toString()} {one.getLen()} {one.getModificationTime()}")
        return "\n".join(sorted(lines))

    def fetch(self, target: str) -> None:
        """Copy it to a local path."""
        local = self._jvm.org.apache.hadoop.fs.Path(f"file://{target}")
        # The last argument writes no checksum files beside the copies.
        self._filesystem.copyToLocalFile(False, self._path, local, True)
