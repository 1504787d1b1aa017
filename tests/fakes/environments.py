"""Python environments made of a few files: as `python -m venv` and conda lay them out, in milliseconds."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from pathlib import Path

__all__ = ("install", "make_conda", "make_venv", "site_of")


def make_venv(folder: Path, *, settings: str = "") -> Path:
    """An environment of this interpreter's base, without pip."""
    site_of(folder).mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3"))
    (folder / "bin" / "python").symlink_to("python3")
    (folder / "lib64").symlink_to("lib")
    (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\ninclude-system-site-packages = false\n{settings}")
    (folder / "bin" / "activate").write_text("# for shells\n")
    return folder


def make_conda(folder: Path) -> Path:
    """An environment with a Python of its own: this interpreter, the part of its standard library that it needs to start, and the
    records that conda keeps of what it installed from packages that are no longer cached."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    library, standard = folder / "lib" / f"python{version}", Path(sysconfig.get_path("stdlib"))
    site_of(folder).mkdir(parents=True)
    (folder / "bin").mkdir()
    for file in standard.glob("*.py"):
        shutil.copy(file, library)
    for package in ("collections", "encodings", "importlib", "json", "re"):
        shutil.copytree(standard / package, library / package, ignore=shutil.ignore_patterns("__pycache__"))
    (library / "lib-dynload").mkdir()
    shutil.copy(Path(sys.base_prefix, "bin", f"python{version}"), folder / "bin" / f"python{version}")
    (folder / "bin" / "python").symlink_to(f"python{version}")
    (folder / "include").mkdir()
    (folder / "include" / "Python.h").write_text("// for compilers\n")
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink()]
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta" / "history").write_text("")
    record = {"name": "python", "version": f"{version}.0", "build": "0", "build_number": 0, "channel": "made-up", "url": "made-up"}
    record |= {"files": files, "link": {"source": str(folder / "cleared"), "type": 1}, "depends": []}
    (folder / "conda-meta" / f"python-{version}.0-0.json").write_text(json.dumps(record))
    return folder


def site_of(folder: Path) -> Path:
    """Where its packages are."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def install(folder: Path, name: str, files: dict[str, str], *, direct_url: str | None = None) -> None:
    """A distribution with these files below site-packages (`../../../bin/x` is a script)."""
    site = site_of(folder)
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(direct_url)
    own = [f"{info.name}/{entry}" for entry in ("METADATA", "RECORD")]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, *own]))
