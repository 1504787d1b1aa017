"""Virtual environments made of a few files: as `python -m venv` lays them out, in milliseconds."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ("install", "make_venv", "site_of")


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
