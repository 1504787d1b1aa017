from __future__ import annotations

import getpass

import pytest

from tfos_core.errors import ConfigError
from tfos_core.paths import absolute_path, has_scheme, local_path

HDFS = "hdfs://nn:8020"


@pytest.mark.parametrize(
    ("path", "default_fs", "expected"),
    [
        ("s3://bucket/x", HDFS, "s3://bucket/x"),
        ("file:///x", HDFS, "file:///x"),
        ("file:/x", HDFS, "file:/x"),
        ("/x", HDFS, "hdfs://nn:8020/x"),
        ("/x", f"{HDFS}/", "hdfs://nn:8020/x"),
        ("x", HDFS, f"hdfs://nn:8020/user/{getpass.getuser()}/x"),
        ("/x", "file://", "file:///x"),
        ("/x", "file:///", "file:///x"),
        ("x/y", "file:///", "file:///work/x/y"),
        ("data:x", "file://", "file:///work/data:x"),
    ],
)
def test_paths_become_absolute_on_the_default_file_system(path: str, default_fs: str, expected: str) -> None:
    assert absolute_path(path, default_fs=default_fs, working_dir="/work/") == expected


@pytest.mark.parametrize(
    ("path", "expected"), [("hdfs://x", True), ("s3a+x.y-z://b", True), ("/a://b", False), ("1a://b", False), ("file:/x", False)]
)
def test_a_scheme_is_what_the_path_starts_with(path: str, expected: bool) -> None:
    assert has_scheme(path) is expected


@pytest.mark.parametrize(
    ("path", "expected"), [("/x/y", "/x/y"), ("x", "x"), ("file:///x", "/x"), ("file:/x", "/x"), ("file:////x", "/x")]
)
def test_local_paths_lose_their_scheme(path: str, expected: str) -> None:
    assert local_path(path) == expected


def test_a_path_elsewhere_is_not_local() -> None:
    with pytest.raises(ConfigError, match="'hdfs://nn/x' is not on a local file system") as caught:
        local_path("hdfs://nn/x")
    assert "file://" in str(caught.value.hint)
