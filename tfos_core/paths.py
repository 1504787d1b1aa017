"""Paths as users write them, made absolute; pure."""

from __future__ import annotations

import getpass
import re

from tfos_core.errors import ConfigError

__all__ = ("absolute_path", "has_scheme", "local_path")

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


def has_scheme(path: str) -> bool:
    """Whether `path` starts with `scheme://`, any scheme."""
    return _SCHEME.match(path) is not None


def absolute_path(path: str, *, default_fs: str = "file://", working_dir: str = "/") -> str:
    """`path` with a scheme, by the rules of the 2022 API.

    A path with a scheme stays as it is (also `file:/x`, as Hadoop prints it); an absolute path is put on the default file
    system; a relative one starts at `working_dir` on a local default file system and at `/user/<name>` elsewhere.

    >>> absolute_path("mnist", default_fs="file://", working_dir="/tmp")
    'file:///tmp/mnist'
    >>> absolute_path("/data", default_fs="hdfs://nn:8020/")
    'hdfs://nn:8020/data'
    """
    if has_scheme(path) or path.startswith("file:/"):
        return path
    base = default_fs.rstrip("/") if default_fs not in ("file://", "file:///") else "file://"
    if path.startswith("/"):
        return f"{base}{path}"
    if base.startswith("file:"):
        return f"file://{working_dir.rstrip('/')}/{path}"
    return f"{base}/user/{getpass.getuser()}/{path}"


def local_path(path: str) -> str:
    """The path on this machine of a `file:` URI or a plain path.

    Raises:
        ConfigError: another scheme.
    """
    if path.startswith("file:"):
        return "/" + path[len("file:") :].lstrip("/")
    if has_scheme(path):
        raise ConfigError(
            f"{path!r} is not on a local file system",
            "TensorFlow itself writes to local paths only; give a path without a scheme, or file://, that the nodes can reach.",
        )
    return path
