"""Which files of a virtual environment travel with a job. Looks at the environment, changes nothing."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tfos_core.errors import EnvironmentCheckError

__all__ = ("Entry", "VirtualEnvironment", "inspect_venv", "refuse_editable")

#: Executors have pyspark from Spark itself (it is 490 MB, most of it jars), and the engine travels on its own.
LEFT_OUT_PACKAGES = ("pyspark", "tfos")
#: Only compilers and test runners read these: half a gigabyte of TensorFlow's wheel are headers.
LEFT_OUT_FOLDERS = frozenset(
    {"tensorflow/include", "pyarrow/include", "pyarrow/tests", "pandas/tests", "h5py/tests", "numpy/tests", "numpy/_core/tests"}
)
_CACHES = frozenset({".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})
_ACTIVATION = re.compile(r"(?i)activate(\.\w+)?\Z")
_BYTE_CODE = "__pycache__"
#: The folder of scripts and that of libraries; others (man pages, notebooks' assets) are not what a job runs.
_TOP_FOLDERS = ("bin", "lib", "lib64", "etc", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file or link: its name in the archive, where it is, its size in bytes, and where a link points."""

    name: str
    source: Path
    mode: int
    size: int
    modified_ns: int
    link: str | None = None

    @property
    def is_byte_code(self) -> bool:
        """Whether it is made from another file, at any time and by any run of the interpreter."""
        return self.name.endswith(".pyc")

    @property
    def is_script(self) -> bool:
        """Whether its first line may name this environment's interpreter."""
        return self.link is None and self.name.startswith("bin/")


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualEnvironment:
    """An environment that can be packed.

    `base` is the folder of the interpreter that it was made from: `bin/python` is a link to there, and the standard library stays
    there, so that executors need the same one. `lock` is what is installed, sorted lines of `name==version`.
    """

    prefix: Path
    base: Path
    python: tuple[int, int]
    entries: tuple[Entry, ...]
    lock: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.size for entry in self.entries)


def inspect_venv(prefix: Path) -> VirtualEnvironment:
    """Look at a virtual environment.

    Raises:
        EnvironmentCheckError: it is none, or it uses files that are outside of it.
    """
    settings = _settings(prefix)
    site = _site_packages(prefix)
    packages = {_normal(package.name): package for package in metadata.distributions(path=[str(site)])}
    _refuse_outside_files(prefix, settings, packages)
    left_out = _files_of(packages, site, prefix)
    entries = tuple(sorted(_entries(prefix, f"{site.relative_to(prefix)}/", left_out), key=lambda entry: entry.name))
    lock = sorted(f"{name}=={package.version}" for name, package in packages.items() if name not in LEFT_OUT_PACKAGES)
    major, minor = site.parent.name.removeprefix("python").split(".")[:2]
    return VirtualEnvironment(
        prefix=prefix,
        base=Path(settings["home"]),
        python=(int(major), int(minor.rstrip("t"))),
        entries=entries,
        lock=tuple(lock),
    )


def _settings(prefix: Path) -> Mapping[str, str]:
    """`pyvenv.cfg`."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise EnvironmentCheckError(
            f"environment.pack is 'venv', but the Python that runs tfos ({prefix}) is no virtual environment",
            "Make one ('python3 -m venv env; env/bin/pip install tfos'), and run tfos from it.",
        ) from None
    pairs = (line.partition("=") for line in lines if "=" in line)
    settings = {key.strip().lower(): value.strip() for key, _, value in pairs}
    if "home" not in settings:
        raise EnvironmentCheckError(f"{prefix}/pyvenv.cfg does not say where its Python is", "Make the environment again.")
    return settings


def _site_packages(prefix: Path) -> Path:
    found = sorted((prefix / "lib").glob("python*.*/site-packages"))
    if len(found) != 1:
        many = "no" if not found else "more than one"
        raise EnvironmentCheckError(f"{prefix} has {many} lib/pythonX.Y/site-packages", "Make the environment again.")
    return found[0]


def _refuse_outside_files(prefix: Path, settings: Mapping[str, str], packages: Mapping[str, metadata.Distribution]) -> None:
    """What is outside of the environment stays behind, and would be missing on the executors."""
    if settings.get("include-system-site-packages", "false").lower() == "true":
        raise EnvironmentCheckError(
            f"the virtual environment {prefix} uses packages of the system's Python, which do not travel with it",
            "Make it without --system-site-packages, and install everything into it.",
        )
    refuse_editable(prefix, packages.values())


def refuse_editable(prefix: Path, packages: Iterable[metadata.Distribution]) -> None:
    """Packages whose files are somewhere else can not travel; the engine itself does so on its own way.

    Raises:
        EnvironmentCheckError: there are such.
    """
    named = {_normal(package.name): package for package in packages}
    editable = sorted(name for name, package in named.items() if name not in LEFT_OUT_PACKAGES and _is_editable(package))
    if editable:
        raise EnvironmentCheckError(
            f"{', '.join(editable)} in {prefix} can not be packed: 'pip install -e' left the files outside of the environment",
            f"Install without -e (pip install --force-reinstall --no-deps FOLDER_OF_{editable[0].upper()}).",
        )


def _is_editable(package: metadata.Distribution) -> bool:
    text = package.read_text("direct_url.json")
    try:
        return bool(json.loads(text or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False


def _files_of(packages: Mapping[str, metadata.Distribution], site: Path, prefix: Path) -> frozenset[str]:
    """Names in the archive of what the packages that stay behind have installed; their folders at the top, with a slash."""
    names: set[str] = set()
    for name in LEFT_OUT_PACKAGES:
        for file in (packages[name].files or ()) if name in packages else ():
            path = Path(os.path.normpath(site / file))
            if not path.is_relative_to(prefix):
                continue
            inside = path.relative_to(prefix).as_posix()
            names.add(inside)
            if path.is_relative_to(site) and len(path.relative_to(site).parts) > 1:
                names.add(f"{(site / path.relative_to(site).parts[0]).relative_to(prefix).as_posix()}/")
    return frozenset(names - {f"{site.relative_to(prefix).as_posix()}/{_BYTE_CODE}/"})


def _entries(prefix: Path, site: str, left_out: frozenset[str]) -> Iterator[Entry]:
    queue = [name for name in _TOP_FOLDERS if os.path.lexists(prefix / name)]
    yield _entry("pyvenv.cfg", prefix, prefix / "pyvenv.cfg")
    while queue:
        name = queue.pop()
        path = prefix / name
        if path.is_symlink() or not path.is_dir():
            yield _entry(name, prefix, path)
            continue
        with os.scandir(path) as found:
            queue += [f"{name}/{child.name}" for child in found if not _stays(f"{name}/{child.name}", site, left_out)]


def _stays(name: str, site: str, left_out: frozenset[str]) -> bool:
    """Whether a file or folder stays behind."""
    folder, _, last = name.rpartition("/")
    if name in left_out or f"{name}/" in left_out or last in _CACHES:
        return True
    if name.removeprefix(site) in LEFT_OUT_FOLDERS:
        return True
    if folder.endswith(_BYTE_CODE):
        # Importing TensorFlow takes 5 s with its byte code and 16 s without, in each node of every job, so it travels.
        return not last.endswith(f".{sys.implementation.cache_tag}.pyc")
    return folder == "bin" and _ACTIVATION.match(last) is not None


def _entry(name: str, prefix: Path, path: Path) -> Entry:
    status = path.lstat()
    link = None
    if stat.S_ISLNK(status.st_mode):
        link = str(path.readlink())
        if link.startswith(f"{prefix}/"):
            # As some tools make them; relative, it holds wherever the archive is unpacked.
            link = os.path.relpath(link, path.parent)
    return Entry(
        name=name,
        source=path,
        mode=stat.S_IMODE(status.st_mode),
        size=0 if link is not None else status.st_size,
        modified_ns=status.st_mtime_ns,
        link=link,
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
