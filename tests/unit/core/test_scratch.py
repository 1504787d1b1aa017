"""The folder for a node's temporary files: made private, kept while its owner lives, removed by whoever finds it left."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tfos_core.scratch import Scratch, sweep_scratch

MAKE_AND_WAIT = """
import os, sys, time
from tfos_core.scratch import Scratch
scratch = Scratch()
print(scratch.make(os.environ), flush=True)
time.sleep(600)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"TMPDIR": str(tmp_path)}


def test_the_folder_is_private_and_goes_with_all_that_is_in_it(environ: dict[str, str], tmp_path: Path) -> None:
    scratch = Scratch()
    folder = Path(scratch.make(environ))
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    scratch.remove()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_outlives_a_sweep_only_while_its_owner_lives(environ: dict[str, str], tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", MAKE_AND_WAIT], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        (folder / "file").write_text("x")
        mine = Scratch()
        mine.make(environ)  # sweeps
        sweep_scratch(environ)
        assert folder.exists()
    finally:
        owner.kill()
        owner.communicate()
    assert folder.exists()
    sweep_scratch(environ)
    assert [str(path) for path in tmp_path.iterdir()] == [mine.make(environ)]
    mine.remove()


def test_links_and_files_of_that_name_are_not_followed(environ: dict[str, str], tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (tmp_path / "tfos-tmp-link").symlink_to(precious)
    (tmp_path / "tfos-tmp-file").write_text("x")
    sweep_scratch(environ)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "tfos-tmp-file", "tfos-tmp-link"]
    assert (precious / "file").exists()


def test_a_tmpdir_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    scratch = Scratch()
    folder = Path(scratch.make({"TMPDIR": str(tmp_path / "gone")}))
    assert folder.is_dir()
    scratch.remove()
    assert not folder.exists()
