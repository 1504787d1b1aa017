"""The Python environment that travels with the job."""

from __future__ import annotations

import importlib.util
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tfos_cli.spec.checks.finding import Case, Findings
from tfos_cli.spec.checks.inputs import local_path
from tfos_cli.spec.masters import MasterKind

__all__ = ("RULES",)

FIELD = "environment.pack"
SUFFIXES = (".tar.gz", ".tgz", ".zip")
#: Names of the folder that the environment is unpacked as, and of the interpreter for executors.
FOLDER = "environment"
PYTHON_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
PYTHON_PROPERTIES = ("spark.pyspark.python", "spark.pyspark.driver.python")
_LIBRARY = re.compile(r"(?:\./)?lib/python(\d+)\.(\d+)t?/")
_INTERPRETER = re.compile(r"(?:\./)?bin/python\Z")


def _is_asked(case: Case) -> bool:
    return case.spec.environment.pack != "none"


def is_needed(case: Case) -> Findings:
    """Executors of this machine have its files."""
    if _is_asked(case) and case.kind in (MasterKind.EMBEDDED, MasterKind.LOCAL_CLUSTER):
        message = "executors are processes of this machine and use the Python that runs tfos, so nothing is packed"
        yield case.warning("pack-not-needed", FIELD, message, "Name a cluster in spark.master, or set environment.pack: none.")


def is_here(case: Case) -> Findings:
    """What is packed is the environment that runs tfos; another machine than this one may submit."""
    pack, prefix = case.spec.environment.pack, Path(sys.prefix)
    if pack == "venv" and not (prefix / "pyvenv.cfg").is_file():
        message = f"the Python that runs tfos ({prefix}) is no virtual environment"
        yield case.warning("pack-not-here", FIELD, message, "Make one with 'python3 -m venv', install tfos, and run it from there.")
    if pack == "conda" and not (prefix / "conda-meta").is_dir():
        message = f"the Python that runs tfos ({prefix}) is no conda environment"
        yield case.warning("pack-not-here", FIELD, message, "Activate one that has tfos, or set environment.pack: venv.")
    elif pack == "conda" and importlib.util.find_spec("conda_pack") is None:
        message = f"conda-pack is not installed in {prefix}"
        yield case.warning("pack-not-here", FIELD, message, "Install it: conda install -c conda-forge conda-pack.")


def archive(case: Case) -> Findings:
    """A file that is named has to be an environment of the driver's Python version."""
    pack = case.spec.environment.pack
    if pack in ("none", "venv", "conda"):
        return
    if not pack.lower().endswith(SUFFIXES):
        message = f"{pack!r} is neither none, venv, conda nor an archive that Spark unpacks with its permissions"
        yield case.error("pack-not-an-archive", FIELD, message, "Name a .tar.gz (made by venv-pack or conda-pack) or a .zip.")
        return
    if "#" in pack:
        message = f"{pack!r} has a #, which Spark takes for the beginning of a folder's name"
        yield case.error("pack-not-an-archive", FIELD, message, f"Name the file alone; it is unpacked as {FOLDER}.")
        return
    path = local_path(case, pack)
    if path is not None:
        yield from _contents(case, path)


def _contents(case: Case, path: Path) -> Findings:
    import tarfile

    if not path.is_file():
        yield case.error("pack-missing", FIELD, f"there is no file {path}", "Paths are relative to the spec.")
        return
    try:
        found = _look(path)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as exc:
        yield case.error("pack-not-an-archive", FIELD, f"{path} can not be read: {exc}", "Make the archive again.")
        return
    here = sys.version_info[:2]
    if not found.has_python:
        message = f"{path} has no bin/python that can be executed at its top"
        yield case.error("pack-not-an-environment", FIELD, message, "Pack with venv-pack or conda-pack, not the folder itself.")
    elif found.version is not None and found.version != here:
        theirs, ours = (".".join(map(str, version)) for version in (found.version, here))
        message = f"{path} has Python {theirs}, and the driver runs {ours}; Spark wants the same minor version on both sides"
        yield case.error("pack-other-python", FIELD, message, f"Pack an environment of Python {ours}, or run tfos with {theirs}.")
    elif path.suffix.lower() == ".zip":
        message = "Spark before 4.0 unpacks a .zip without the permission to execute, so that Python does not start"
        yield case.warning("pack-zip", FIELD, message, "Use a .tar.gz.")


class _Found:
    """What was seen in an archive so far."""

    def __init__(self) -> None:
        self.has_python = False
        self.version: tuple[int, int] | None = None

    def see(self, name: str, *, can_run: bool) -> bool:
        """Whether everything is known."""
        if _INTERPRETER.match(name) and can_run:
            self.has_python = True
        if self.version is None and (match := _LIBRARY.match(name)):
            self.version = (int(match[1]), int(match[2]))
        return self.has_python and self.version is not None


def _look(path: Path) -> _Found:
    """Read until both are seen: with the interpreter in front, as packers write it, that takes no time."""
    found = _Found()
    for name, can_run in _zip_names(path) if path.suffix.lower() == ".zip" else _tar_names(path):
        if found.see(name, can_run=can_run):
            break
    return found


def _tar_names(path: Path) -> Iterator[tuple[str, bool]]:
    import tarfile

    with tarfile.open(path, mode="r|gz") as packed:
        for member in packed:
            yield member.name, member.issym() or (member.isfile() and bool(member.mode & stat.S_IXUSR))


def _zip_names(path: Path) -> Iterator[tuple[str, bool]]:
    with zipfile.ZipFile(path) as packed:
        for info in packed.infolist():
            # A link in a zip becomes a file with the name of its target.
            mode = info.external_attr >> 16
            yield info.filename, stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR)


def one_python(case: Case) -> Findings:
    """The executors' Python is the packed one, and its folder has one content."""
    if not _is_asked(case):
        return
    fix = "Leave it out, or set environment.pack: none."
    for name in PYTHON_VARIABLES:
        if name in case.spec.environment.vars:
            yield case.error("pack-and-python", f"environment.vars.{name}", f"environment.pack decides about {name}", fix)
    for key in PYTHON_PROPERTIES:
        if key in case.conf:
            yield case.conf_error("pack-and-python", key, f"environment.pack decides about {key}", fix)
    for archive_ in case.spec.spark.archives:
        if archive_.rpartition("#")[2] == FOLDER and "#" in archive_:
            message = f"{archive_} is unpacked as {FOLDER}, and so is environment.pack"
            yield case.error("pack-and-archive", "spark.archives", message, "Give it another name after the #.")


RULES = (is_needed, is_here, archive, one_python)
