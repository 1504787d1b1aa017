from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from tfos_core.private_files import bind_private, write_private


@pytest.fixture(autouse=True)
def careless_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_file_is_for_its_owner_whatever_was_there_before(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "secret", tmp_path / "elsewhere"
    write_private(path, "one")
    assert (path.read_text(), mode(path)) == ("one", 0o600)
    path.chmod(0o666)
    write_private(path, "two")
    assert (path.read_text(), mode(path)) == ("two", 0o600)
    elsewhere.write_text("untouched")
    path.unlink()
    path.symlink_to(elsewhere)
    write_private(path, "three")
    assert not path.is_symlink()
    assert (path.read_text(), elsewhere.read_text()) == ("three", "untouched")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["elsewhere", "secret"]


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_private(tmp_path / "folder", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_private_socket_has_its_mode_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(Path, "chmod", lambda self, wanted: seen.append(mode(self)))
    with socket.socket(socket.AF_UNIX) as listener:
        bind_private(listener, tmp_path / "s")
    assert seen == [0o600] if os.uname().sysname == "Linux" else seen
