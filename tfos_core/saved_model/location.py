"""Where the model lies, and how it comes to executors.

The driver reads it, from any file system that Spark knows. Executors on the same machine read the same files; others get a zip
through Spark, once per executor.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfos_core.errors import ConfigError
from tfos_core.paths import has_scheme, local_path
from tfos_core.saved_model.hadoop import HadoopPath

__all__ = ("KERAS_SUFFIX", "ModelFiles", "ModelRef", "locate")

KERAS_SUFFIX = ".keras"
_GRAPH = "saved_model.pb"
_GRAPH_TEXT = "saved_model.pbtxt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model for a Python worker.

    Attributes:
        shown: what the user calls it.
        path: the folder or `.keras` file, on this host.
        archive: the name under which Spark brings it, empty where `path` can be read.
        fingerprint: changes with the model's files, so that a worker does not go on with one that was replaced.
    """

    shown: str
    path: str
    archive: str
    fingerprint: str

    @property
    def is_keras(self) -> bool:
        """Whether it is a `.keras` file, which has no signatures."""
        return self.path.endswith(KERAS_SUFFIX)

    def local_path(self) -> Path:
        """The folder or file on this host; unpacks what Spark brought when no other worker has."""
        if not self.archive:
            return Path(self.path)
        from pyspark import SparkFiles

        root = Path(SparkFiles.getRootDirectory())
        target = root / f"tfos-model-{self.fingerprint}"
        if not target.exists():
            temporary = Path(tempfile.mkdtemp(prefix=".tfos-model-", dir=root))
            try:
                with zipfile.ZipFile(SparkFiles.get(self.archive)) as archive:
                    archive.extractall(temporary)
                temporary.rename(target)
            except OSError:
                shutil.rmtree(temporary, ignore_errors=True)
                if not target.exists():  # else another worker was faster
                    raise
        return target / Path(self.path).name

    def graph(self) -> bytes | None:
        """The bytes of `saved_model.pb`, on the driver; None when only an executor can find out."""
        folder = Path(self.path)
        return None if self.is_keras or (folder / _GRAPH_TEXT).exists() else (folder / _GRAPH).read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """What a worker loads: the files, the graph by its tags, and the signature's key."""

    files: ModelFiles
    tags: tuple[str, ...]
    signature: str


def locate(sc: Any, export_dir: str) -> ModelFiles:
    """Find a model, and make sure that executors have it.

    Raises:
        ConfigError: there is none, or it can not be read.
    """
    is_remote = has_scheme(export_dir) and not export_dir.startswith("file:")
    path = Path(_fetched(sc, export_dir) if is_remote else local_path(export_dir)).expanduser().absolute()
    _check(path, export_dir)
    files = _files(path)
    fingerprint = _fingerprint(path, files)
    archive = ""
    if not str(sc.master).startswith("local"):
        archive = f"tfos-model-{fingerprint}.zip"
        _ship(sc, path, files, archive)
    return ModelFiles(shown=export_dir, path=str(path), archive=archive, fingerprint=fingerprint)


def _check(path: Path, shown: str) -> None:
    if path.suffix == KERAS_SUFFIX and path.is_file():
        return
    if (path / _GRAPH).is_file() or (path / _GRAPH_TEXT).is_file():
        return
    if not path.exists():
        raise ConfigError(f"there is no model at {shown}", "Check export_dir; a relative path starts at the spec's folder.")
    inside = sorted(file.parent.name for file in path.glob(f"*/{_GRAPH}")) if path.is_dir() else []
    hint = "Export it with model.export(path), or save a .keras file."
    if inside:
        hint = f"There is one in {shown.rstrip('/')}/{inside[-1]}."
    raise ConfigError(f"{shown} is no SavedModel: it has no file {_GRAPH}", hint)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file())


def _fingerprint(path: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(str(path).encode())
    for file in files:
        status = file.stat()
        digest.update(f"\0{file.relative_to(path.parent)}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:24]


def _ship(sc: Any, path: Path, files: Iterable[Path], name: str) -> None:
    archive = Path(sc._temp_dir) / name  # which Spark removes when the application ends
    if archive.exists():
        return
    temporary = archive.with_suffix(f".{os.getpid()}")
    # Stored, not compressed: weights do not get smaller.
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as packed:
        for file in files:
            packed.write(file, file.relative_to(path.parent))
    temporary.rename(archive)
    sc.addFile(str(archive))


def _fetched(sc: Any, url: str) -> str:
    """A copy on the driver, below a folder of its version, so that the same model is copied once."""
    source = HadoopPath.of(sc, url)
    version = source.version()
    if version is None:
        raise ConfigError(f"there is no model at {url}", "Check export_dir.")
    folder = Path(sc._temp_dir) / f"tfos-model-{hashlib.sha256(f'{url}{version}'.encode()).hexdigest()[:24]}"
    target = folder / url.rstrip("/").rpartition("/")[2]
    if not folder.exists():
        temporary = Path(tempfile.mkdtemp(prefix=".tfos-model-", dir=sc._temp_dir))
        source.fetch(str(temporary / target.name))
        temporary.rename(folder)
    return str(target)
