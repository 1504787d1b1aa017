"""One layer over local paths and fsspec; `memory://` stands for what is remote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tfos_core.errors import ConfigError, EnvironmentCheckError
from tfos_core.storage import StorageError, fetch, publish, storage_of
from tfos_core.storage.interface import Entry
from tfos_core.storage.patterns import alternatives
from tfos_core.storage.remote import RemoteStorage

KINDS = ("local", "remote")


@pytest.fixture
def memory() -> Iterator[str]:
    """A file system that lives in this process."""
    filesystem = fsspec.filesystem("memory")
    yield "memory://root"
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path, memory: str) -> str:
    return str(tmp_path) if request.param == "local" else memory


def write(path: str, data: bytes = b"data") -> str:
    with storage_of(path).open_output(path) as file:
        file.write(data)
    return path


def read(path: str) -> bytes:
    with storage_of(path).open_input(path) as file:
        return file.read()


def below(path: str, *, hidden: bool = False) -> list[str]:
    storage = storage_of(path)
    return [entry.below for entry in storage.files_below(storage.absolute(path), hidden=hidden)]


def test_a_file_is_written_with_its_folder_and_read_from_any_place(root: str) -> None:
    path = write(f"{root}/a/b/c", b"0123456789")
    with storage_of(path).open_input(path) as file:
        assert file.read(2) == b"01"
        assert file.seek(6) == 6
        assert file.read() == b"6789"
    assert storage_of(path).exists(path)
    assert storage_of(path).is_folder(f"{root}/a/b")
    assert not storage_of(path).is_folder(path)
    assert not storage_of(path).exists(f"{root}/a/c")


def test_files_come_in_order_without_hidden_ones(root: str) -> None:
    for name in ("b", "a/2", "a/1", "_SUCCESS", ".x", "_tmp/part"):
        write(f"{root}/in/{name}", b"xyz")
    assert below(f"{root}/in") == ["a/1", "a/2", "b"] or below(f"{root}/in") == ["b", "a/1", "a/2"]
    assert sorted(below(f"{root}/in", hidden=True)) == [".x", "_SUCCESS", "_tmp/part", "a/1", "a/2", "b"]
    storage = storage_of(root)
    (entry,) = storage.files_below(storage.absolute(f"{root}/in/b"))
    assert (entry.below, entry.size) == ("", 3)
    assert read(entry.path) == b"xyz"


def test_wildcards_and_braces_find_what_exists(root: str) -> None:
    for name in ("part-1", "part-2", "other"):
        write(f"{root}/in/{name}")
    storage = storage_of(root)
    names = [path.rpartition("/")[2] for path in storage.expand(storage.absolute(f"{root}/in/part-*"))]
    assert names == ["part-1", "part-2"]
    names = [path.rpartition("/")[2] for path in storage.expand(storage.absolute(f"{root}/in/{{part-2,oth*}}"))]
    assert names == ["other", "part-2"]
    assert storage.expand(storage.absolute(f"{root}/in/x*")) == ()
    assert all(storage.exists(path) for path in storage.expand(storage.absolute(f"{root}/in/*")))


def test_a_brace_that_is_not_closed_stands_for_itself() -> None:
    assert alternatives("a{b") == ("a{b",)
    assert alternatives("{a,b}{1,2}") == ("a1", "a2", "b1", "b2")


def test_rename_moves_folders_and_remove_takes_everything(root: str) -> None:
    write(f"{root}/from/a/1")
    storage = storage_of(root)
    storage.rename(f"{root}/from", f"{root}/deep/to")
    assert below(f"{root}/deep/to") == ["a/1"]
    assert not storage.exists(f"{root}/from/a/1")
    storage.remove(f"{root}/deep")
    storage.remove(f"{root}/deep")
    assert not storage.exists(f"{root}/deep/to/a/1")


def test_a_missing_file_is_named(root: str) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        storage_of(root).open_input(f"{root}/nothing-here")


def test_a_folder_is_published_and_fetched_whole(tmp_path: Path, memory: str) -> None:
    folder = tmp_path / "model"
    for name in ("saved_model.pb", "variables/v.index", ".hidden"):
        write(str(folder / name), name.encode())
    target = publish(folder, f"{memory}/models/digits")
    assert sorted(below(target, hidden=True)) == [".hidden", "saved_model.pb", "variables/v.index"]
    assert below(f"{memory}/models", hidden=True) == [f"digits/{name}" for name in below(target, hidden=True)]
    back = Path(fetch(target, tmp_path / "back"))
    assert {str(file.relative_to(back)): file.read_bytes() for file in back.rglob("*") if file.is_file()} == {
        name: name.encode() for name in ("saved_model.pb", "variables/v.index", ".hidden")
    }


def test_publishing_again_replaces_what_was_there(tmp_path: Path, root: str) -> None:
    (tmp_path / "m" / "new").mkdir(parents=True)
    (tmp_path / "m" / "new" / "x").write_bytes(b"2")
    write(f"{root}/out/t/old", b"1")
    publish(tmp_path / "m", f"{root}/out/t")
    assert below(f"{root}/out", hidden=True) == ["t/new/x"]
    publish(tmp_path / "m" / "new" / "x", f"{root}/out/t")
    assert read(f"{root}/out/t") == b"2"


class _FullError(Exception):
    """No space is left."""


def test_a_failed_publish_leaves_the_old_one_and_nothing_else(tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1", "2"):
        write(str(tmp_path / "m" / name))
    write(f"{memory}/t/old", b"1")
    opened: list[str] = []

    def open_output(self: RemoteStorage, path: str) -> Any:
        opened.append(path)
        if len(opened) == 2:
            raise _FullError
        return real(self, path)

    real = RemoteStorage.open_output
    monkeypatch.setattr(RemoteStorage, "open_output", open_output)
    with pytest.raises(_FullError):
        publish(tmp_path / "m", f"{memory}/t")
    assert below(memory, hidden=True) == ["t/old"]


def test_copying_nothing_is_an_error(tmp_path: Path, memory: str) -> None:
    with pytest.raises(ConfigError, match="nothing at"):
        fetch(f"{memory}/none", tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="without files"):
        publish(tmp_path / "empty", f"{memory}/x")


def test_an_unknown_scheme_and_a_missing_package_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="nosuch://host/x"):
        storage_of("nosuch://host/x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(EnvironmentCheckError, match="fsspec") as caught:
        storage_of("hdfs://host/x")
    assert "tfos[hdfs]" in str(caught.value.hint)
    assert storage_of("file:///x")
    assert storage_of("/x")


class _Broken:
    """A file system whose every call fails as the client of a NameNode does."""

    def _strip_protocol(self, path: str) -> str:
        return path

    def invalidate_cache(self) -> None:
        return

    def info(self, path: str) -> Any:
        raise RuntimeError('RPCError("org.apache.hadoop.Standby", "not active\\n\\tat org.apache.Server.call")')


def test_a_file_system_that_fails_does_not_count_as_one_without_the_file() -> None:
    with pytest.raises(StorageError, match=r"hdfs://nn/x: RuntimeError: .*not active$"):
        RemoteStorage(_Broken()).exists("hdfs://nn/x")


FORK = """
import multiprocessing, subprocess, sys
from tfos_core.storage import storage_of

URL = "hdfs://127.0.0.1:1/x"


def in_child(answers):
    answers.put(type(storage_of(URL)).__name__)


storage = storage_of(URL)
subprocess.run([sys.executable, "-c", ""], preexec_fn=int, check=True)
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
child = context.Process(target=in_child, args=(answers,))
child.start()
child.join()
print(child.exitcode, answers.get())
"""


def test_a_process_that_uses_hdfs_can_fork() -> None:
    pytest.importorskip("hdfs_native")
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0 RemoteStorage\n", done.stderr


@pytest.mark.parametrize("below", ["../outside", "a/../../outside", "/etc/outside", ".."])
def test_a_key_that_leads_out_of_the_target_is_refused(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """Keys of object stores are any text; fsspec's own memory file system tidies them up, S3 does not."""
    write(f"{memory}/model/part")
    entries = [Entry(path=f"{memory}/model/part", below=name, size=4) for name in ("good", below)]
    monkeypatch.setattr(RemoteStorage, "files_below", lambda self, path, *, hidden=False: iter(entries))
    with pytest.raises(ConfigError, match="would be written outside"):
        fetch(f"{memory}/model", tmp_path / "copies" / "model")
    assert list(tmp_path.rglob("*")) == []
