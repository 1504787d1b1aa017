"""Which file system a path is on."""

from __future__ import annotations

import importlib.util
from typing import Any

from tfos_core.errors import ConfigError, EnvironmentCheckError
from tfos_core.paths import has_scheme
from tfos_core.storage.interface import Storage
from tfos_core.storage.local import LocalStorage

__all__ = ("storage_of",)

#: What `hdfs-native` serves; fsspec alone would look for Hadoop's C library.
_HADOOP = ("hdfs", "viewfs")
#: A NameNode that is down fails a read within a minute or two, not after ten.
_HADOOP_OPTIONS = {"dfs.client.failover.max.attempts": "5"}


def storage_of(path: str) -> Storage:
    """The file system of a path: local without a scheme or with `file:`, else fsspec's for the scheme.

    Raises:
        EnvironmentCheckError: the Python packages that it takes are not installed.
        ConfigError: there is no file system for the scheme.
    """
    if path.startswith("file:") or not has_scheme(path):
        return LocalStorage()
    from tfos_core.storage.remote import RemoteStorage

    return RemoteStorage(_filesystem(path))


def _filesystem(path: str) -> Any:
    scheme = path.partition("://")[0].lower()
    try:
        import fsspec
    except ImportError as exc:
        raise EnvironmentCheckError(f"{path} needs the Python package fsspec, which is not installed here", _hint(scheme)) from exc
    options: dict[str, Any] = {}
    if scheme in _HADOOP and importlib.util.find_spec("hdfs_native") is not None:
        from hdfs_native import fsspec as native

        cls = native.HdfsFileSystem if scheme == "hdfs" else native.ViewfsFileSystem
        fsspec.register_implementation(scheme, cls, clobber=True)
        options = dict(_HADOOP_OPTIONS)
    try:
        return fsspec.core.url_to_fs(path, **options)[0]
    except ImportError as exc:
        raise EnvironmentCheckError(f"{path} can not be reached from Python here: {exc}", _hint(scheme)) from exc
    except ValueError as exc:
        known = "hdfs://, viewfs://, s3://, gs://, abfs:// and others of fsspec"
        raise ConfigError(f"{path!r} is on no file system that is known here: {exc}", f"There are {known}.") from exc
    except OSError as exc:
        # pyarrow's client for HDFS looks for Hadoop's own libraries.
        raise EnvironmentCheckError(f"{path} can not be reached from Python here: {exc}", _hint(scheme)) from exc


def _hint(scheme: str) -> str:
    package = "tfos[hdfs], which brings fsspec and hdfs-native" if scheme in _HADOOP else "fsspec and its package for the scheme"
    return f"Install {package} where the driver and the executors run, or ship an environment that has it (environment.pack)."
