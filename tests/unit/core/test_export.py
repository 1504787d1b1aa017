from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tfos_core import compat
from tfos_core.context import TFNodeContext
from tfos_core.errors import ConfigError
from tfos_core.export import export_saved_model
from tfos_core.topology import Role


class Model:
    """Exports as a Keras model does."""

    def __init__(self, content: str, error: Exception | None = None) -> None:
        self.content = content
        self.error = error
        self.paths: list[Path] = []

    def export(self, path: str) -> None:
        folder = Path(path)
        self.paths.append(folder)
        (folder / "variables").mkdir(parents=True)
        (folder / "variables" / "data").write_text(self.content)
        if self.error is not None:
            raise self.error
        (folder / "saved_model.pb").write_text(self.content)


def content(folder: Path) -> str:
    return (folder / "saved_model.pb").read_text() + (folder / "variables" / "data").read_text()


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_an_export_appears_whole_under_its_name(tmp_path: Path) -> None:
    model = Model("a")
    target = tmp_path / "deep" / "export"
    assert export_saved_model(model, f"file://{target}", keep=True) == str(target)
    assert content(target) == "aa"
    assert model.paths[0].parent == target.parent and model.paths[0] != target, "renamed on the same file system"
    assert entries(target.parent) == ["export"]


def test_an_older_export_is_replaced_whole(tmp_path: Path) -> None:
    export_saved_model(Model("a"), str(tmp_path / "export"), keep=True)
    (tmp_path / "export" / "of the old one").touch()
    export_saved_model(Model("b"), f"{tmp_path}/export/", keep=True)
    assert content(tmp_path / "export") == "bb"
    assert entries(tmp_path / "export") == ["saved_model.pb", "variables"]
    assert entries(tmp_path) == ["export"]


def test_a_save_that_fails_leaves_the_older_export_and_nothing_else(tmp_path: Path) -> None:
    export_saved_model(Model("a"), str(tmp_path / "export"), keep=True)
    with pytest.raises(ValueError, match="disk full"):
        export_saved_model(Model("b", ValueError("disk full")), str(tmp_path / "export"), keep=True)
    assert content(tmp_path / "export") == "aa"
    assert entries(tmp_path) == ["export"]


def test_a_rename_that_fails_brings_the_older_export_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "export"
    export_saved_model(Model("a"), str(target), keep=True)
    rename = Path.rename

    def fail(self: Path, to: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError("not now")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="not now"):
        export_saved_model(Model("b"), str(target), keep=True)
    assert content(target) == "aa"
    assert entries(tmp_path) == ["export"]


def test_a_node_that_is_not_the_chief_saves_and_keeps_nothing(tmp_path: Path) -> None:
    model = Model("a")
    assert export_saved_model(model, str(tmp_path / "export"), keep=False) is None
    assert len(model.paths) == 1
    assert entries(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_what_stands_in_the_way_is_replaced_too(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "export"
    (tmp_path / "elsewhere").mkdir()
    if kind == "file":
        target.write_text("x")
    else:
        target.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
    export_saved_model(Model("a"), str(target), keep=True)
    assert content(target) == "aa" and not target.is_symlink()
    assert entries(tmp_path) == ["elsewhere", "export"]


def test_an_export_to_nowhere_is_refused_before_anything_is_saved() -> None:
    model = Model("a")
    with pytest.raises(ConfigError, match="nosuch://nn/x"):
        export_saved_model(model, "nosuch://nn/x", keep=True)
    assert model.paths == []


def test_an_export_elsewhere_is_saved_here_and_copied_by_the_chief() -> None:
    filesystem = fsspec.filesystem("memory")
    try:
        assert export_saved_model(Model("a"), "memory://models/digits", keep=False) is None
        assert filesystem.find("/") == []
        model = Model("b")
        assert export_saved_model(model, "memory://models/digits", keep=True) == "memory://models/digits"
        assert filesystem.find("/") == ["/models/digits/saved_model.pb", "/models/digits/variables/data"]
        assert not model.paths[0].exists()
    finally:
        filesystem.store.clear()
        filesystem.pseudo_dirs[:] = [""]


@pytest.mark.parametrize(("role", "index", "kept"), [(Role.CHIEF, 0, True), (Role.WORKER, 0, False)])
def test_the_context_reports_what_the_chief_exported(tmp_path: Path, role: Role, index: int, kept: bool) -> None:
    reports: list[Any] = []
    spec = {"chief": ["c:1"], "worker": ["w:1"]}
    ctx = TFNodeContext(executor_id=0, role=role, index=index, cluster_spec=spec, working_dir=str(tmp_path), report=reports.append)
    path = ctx.export_saved_model(Model("a"), "export")
    assert path == (str(tmp_path / "export") if kept else None)
    assert reports == ([{"op": "node.export", "path": path}] if kept else [])
    assert (tmp_path / "export").exists() is kept


def test_the_function_of_2022_keeps_the_chiefs_export_only(tmp_path: Path) -> None:
    compat.export_saved_model(Model("a"), str(tmp_path / "export"))
    assert entries(tmp_path) == []
    compat.export_saved_model(Model("b"), str(tmp_path / "export"), is_chief=True)
    assert content(tmp_path / "export") == "bb"
