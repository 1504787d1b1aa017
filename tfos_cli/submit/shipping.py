"""What travels with a job: the engine, the user's program with its neighbours, and the driver shim.

The paths are a pure function of the spec and the run folder, so that a dry run can show them; `write_shipment` makes the files.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tfos_cli.submit.gpus import SCRIPT_NAME, shipped_script
from tfos_cli.submit.properties import cluster_kind, is_on_this_machine
from tfos_cli.submit.references import RESERVED_MODULES, Reference, references_of
from tfos_core import errors as engine_errors
from tfos_core.errors import ConfigError

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("Shipment", "collect_sources", "engine_archive", "shipment_of", "write_shipment")

MOST_BYTES = 32 << 20
MOST_FILES = 5_000
MOST_FOLDERS = 2_000

_SHIM = Path(__file__).parent.parent / "driver.py"
_ENGINE = Path(engine_errors.__file__).parent
_NEVER = frozenset({"__pycache__", "node_modules", "site-packages"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """Where the files of a run are: `application` is None when the program is installed everywhere, `gpu_discovery` when
    Spark does not need it.

    The shim is a copy in a folder of its own. Python puts the folder of the program that it runs first on its path, and in
    `tfos_cli` every module there (`logs`, `main`, ...) would hide one of the user's of the same name.
    """

    shim: Path
    engine: Path
    application: Path | None
    gpu_discovery: Path | None = None

    @property
    def py_files(self) -> tuple[Path, ...]:
        """For `--py-files`."""
        return (self.engine,) if self.application is None else (self.engine, self.application)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Python files by their name in the archive, and top-level names that were left out because a real module has them."""

    files: Mapping[str, Path]
    left_out: tuple[str, ...] = ()


def shipment_of(resolved: ResolvedSpec, run_folder: Path) -> Shipment:
    """The files of a run.

    Raises:
        ConfigError: a function of the spec is not named in a way that can work.
    """
    folder = run_folder / "ship"
    has_files = any(reference.file for reference in references_of(resolved))
    return Shipment(
        shim=folder / "tfos_driver.py",
        engine=folder / "tfos_core.zip",
        application=folder / "application.zip" if has_files else None,
        gpu_discovery=shipped_script(resolved.spec, cluster_kind(resolved.spec), run_folder),
    )


def write_shipment(resolved: ResolvedSpec, run_folder: Path) -> tuple[str, ...]:
    """Write the files of a run, and return the names of neighbours that were left out of it.

    Raises:
        ConfigError: the program is missing, or its neighbours are too many.
    """
    shipment = shipment_of(resolved, run_folder)
    sources = collect_sources(references_of(resolved))
    shipment.shim.parent.mkdir(parents=True, exist_ok=True)
    shipment.shim.write_bytes(_SHIM.read_bytes())
    # Executors of this machine read it where it is; half a megabyte less would cost more than it saves.
    shipment.engine.write_bytes(engine_archive(compressed=not is_on_this_machine(resolved.spec)))
    if shipment.gpu_discovery is not None:
        shipment.gpu_discovery.write_bytes((_ENGINE / SCRIPT_NAME).read_bytes())
        shipment.gpu_discovery.chmod(0o755)
    if shipment.application is not None:
        shipment.application.write_bytes(_archive(sources.files))
    return sources.left_out


def engine_archive(*, compressed: bool = True) -> bytes:
    """`tfos_core` as a zip, the same bytes for the same sources."""
    files = {str(Path("tfos_core") / file.relative_to(_ENGINE)): file for file in _ENGINE.rglob("*.py")}
    return _archive(files, compressed=compressed)


def collect_sources(references: tuple[Reference, ...]) -> Sources:
    """The files that the references name, and the Python files and packages beside them.

    Neither data nor virtual environments, hidden folders and caches. A neighbour with the name of a module of Python or of
    TensorFlow stays behind: on an executor it would be imported in its place.

    Raises:
        ConfigError: a file is missing, two folders have different modules of one name, or there is too much.
    """
    files: dict[str, Path] = {}
    left_out: list[str] = []
    folders: list[Path] = []
    for reference in references:
        if reference.file is None:
            continue
        if not reference.file.is_file():
            raise ConfigError(f"{reference.field} is {reference.shown!r}, but there is no file {reference.file}", _RELATIVE)
        if reference.file.parent not in folders:
            folders.append(reference.file.parent)
    for folder in folders:
        budget = _Budget(folder)
        for name, file in _modules_of(folder, budget):
            top = name.partition("/")[0].removesuffix(".py")
            if top in RESERVED_MODULES:
                left_out.append(top)
                continue
            other = files.setdefault(name, file)
            if other != file:
                raise ConfigError(
                    f"{other} and {file} would both be imported as {top!r}",
                    "Rename one of them, or put both programs into one folder.",
                )
    return Sources(files=files, left_out=tuple(sorted(set(left_out))))


_RELATIVE = "Files are relative to the folder of the spec."


class _Budget:
    """Ends a search that has gone astray, as one that began in a home folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes = 0
        self._files = 0
        self._folders = 0

    def count_file(self, file: Path) -> None:
        self._files += 1
        self._bytes += file.stat().st_size
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:
            self._refuse(f"more than {MOST_FILES} Python files or {MOST_BYTES >> 20} MB of them")

    def count_folder(self) -> None:
        self._folders += 1
        if self._folders > MOST_FOLDERS:
            self._refuse(f"more than {MOST_FOLDERS} folders")

    def _refuse(self, what: str) -> None:
        raise ConfigError(
            f"the folder {self._root}, whose Python files travel with the job, has {what}",
            "Put the program and the modules that it imports into a folder of their own.",
        )


def _modules_of(folder: Path, budget: _Budget) -> Iterator[tuple[str, Path]]:
    """Modules and packages at the top of a folder, as (name in the archive, file)."""
    seen: set[Path] = set()
    for entry in sorted(folder.iterdir()):
        if entry.name.isidentifier() and entry.is_dir():
            yield from _package_files(entry, entry.name, budget, seen)
        elif _is_module(entry):
            budget.count_file(entry)
            yield entry.name, entry


def _package_files(folder: Path, prefix: str, budget: _Budget, seen: set[Path]) -> Iterator[tuple[str, Path]]:
    real = folder.resolve()
    if real in seen or folder.name in _NEVER or any((folder / mark).exists() for mark in _ENVIRONMENT_MARKS):
        return
    seen.add(real)  # a link to a folder above would go round for ever
    budget.count_folder()
    for entry in sorted(folder.iterdir()):
        name = f"{prefix}/{entry.name}"
        if entry.name.isidentifier() and entry.is_dir():
            yield from _package_files(entry, name, budget, seen)
        elif _is_module(entry):
            budget.count_file(entry)
            yield name, entry


def _is_module(entry: Path) -> bool:
    return entry.suffix == ".py" and entry.stem.isidentifier() and entry.is_file()


def _archive(files: Mapping[str, Path], *, compressed: bool = True) -> bytes:
    """A zip that depends on names and contents only: sorted, without times and owners.

    Folders have entries of their own: Python's import from a zip finds a package without `__init__.py` by them only.
    """
    folders = {f"{parent}/" for name in files for parent in PurePosixPath(name).parents if parent.name}
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted({*files, *folders}):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            info.external_attr = 0o644 << 16
            # The least compression: a tenth larger than the default, in a third of the time, at the start of every job.
            archive.writestr(info, files[name].read_bytes() if name in files else b"", compresslevel=1)
    return buffer.getvalue()
