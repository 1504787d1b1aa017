"""Which file system a path is on."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from tfos_core.errors import ConfigError, EnvironmentCheckError
from tfos_core.paths import has_scheme
from tfos_core.storage.interface import Storage
from tfos_core.storage.local import LocalStorage

__all__ = ("storage_of",)

#: What `hdfs-native` serves; fsspec alone would look for Hadoop's C library.
_HADOOP = ("hdfs", "viewfs")
_NAMENODE_PORT = 8020
#: A NameNode that is down is an error after seconds, not after minutes.
_HADOOP_OPTIONS: dict[str, Any] = {"dfs.client.failover.max.attempts": "5"}

#: Clients of this process, by its id, scheme and authority; never let go of. A client has threads, which a forked child lacks: one
#: that is freed there waits for them for ever. The cache of fsspec frees what it holds in every child, so any fork would hang, such
#: as the one with which pyspark starts Java.
_clients: dict[tuple[int, str, str], Any] = {}


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
    try:
        if scheme in _HADOOP and importlib.util.find_spec("hdfs_native") is not None:
            return _hadoop(fsspec, scheme, path)
        return fsspec.core.url_to_fs(path)[0]
    except ValueError as exc:
        known = "hdfs://, viewfs://, s3://, gs://, abfs:// and others of fsspec"
        raise ConfigError(f"{path!r} is on no file system that is known here: {exc}", f"There are {known}.") from exc
    except (ImportError, OSError) as exc:
        # OSError: without hdfs-native, pyarrow's client for HDFS looks for Hadoop's own libraries.
        raise EnvironmentCheckError(f"{path} can not be reached from Python here: {exc}", _hint(scheme)) from exc


def _hadoop(fsspec: Any, scheme: str, path: str) -> Any:
    authority = path.partition("://")[2].partition("/")[0]
    key = (os.getpid(), scheme, authority)
    if key not in _clients:
        from hdfs_native import fsspec as native

        fsspec.register_implementation(scheme, native.HdfsFileSystem if scheme == "hdfs" else native.ViewfsFileSystem, clobber=True)
        options = _HADOOP_OPTIONS | {"skip_instance_cache": True}
        try:
            _clients[key] = fsspec.core.url_to_fs(path, **options)[0]
        except RuntimeError as exc:
            if scheme != "hdfs" or not authority or ":" in authority:
                hint = "Write hdfs://HOST:PORT/..., or set HADOOP_CONF_DIR."
                raise ConfigError(f"{path!r} names no NameNode: {exc}", hint) from exc
            # Neither a name service of the configuration nor a port: Hadoop takes the NameNode's usual one.
            _clients[key] = fsspec.core.url_to_fs(f"hdfs://{authority}:{_NAMENODE_PORT}/", **options)[0]
    return _clients[key]


def _hint(scheme: str) -> str:
    package = "tfos[hdfs], which brings fsspec and hdfs-native" if scheme in _HADOOP else "fsspec and its package for the scheme"
    return f"Install {package} where the driver and the executors run, or ship an environment that has it (environment.pack)."
