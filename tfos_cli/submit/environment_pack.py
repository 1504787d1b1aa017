"""The Python environment that travels with a job: which archive it is, made once and kept for the next submission.

`shipped_environment` says without looking at anything where the archive of a run will be; `write_environment` puts it there, and
imports only then what packs: most runs ship none.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_cli.spec.places import below
from tfos_cli.submit.properties import is_on_this_machine
from tfos_core.errors import ConfigError, EnvironmentCheckError

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec
    from tfos_cli.spec.model import JobSpec
    from tfos_cli.submit.venv_files import VirtualEnvironment

__all__ = ("PackCache", "shipped_environment", "write_environment")

#: Changes when archives of an older tfos must not be used any more.
_RECIPE = 1
#: One archive has nearly a gigabyte. Runs have links of their own to theirs, so that removing one here harms none.
_KEPT = 3
_ARCHIVE = "environment.tar.gz"
_LOCK = "lock.txt"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")

Tell = Callable[[str], object]


def shipped_environment(resolved: ResolvedSpec, run_folder: Path) -> str | None:
    """Path or URL of the archive of a run; None when nothing is shipped, as to executors of this machine, which have our files.

    Pure.
    """
    spec = resolved.spec
    if spec.environment.pack == "none" or is_on_this_machine(spec):
        return None
    if _is_made_here(spec):
        return str(run_folder / "ship" / _ARCHIVE)
    return spec.environment.pack if _URL.match(spec.environment.pack) else str(below(resolved.folder, spec.environment.pack))


def write_environment(
    resolved: ResolvedSpec, run_folder: Path, environ: Mapping[str, str], *, prefix: Path | None = None, tell: Tell = lambda _: None
) -> None:
    """Put the archive into the folder of a run, packing it when the cache does not have it.

    Args:
        prefix: the environment. Default: that of the running interpreter.
        tell: gets a sentence before something that takes long.

    Raises:
        EnvironmentCheckError: there is no such environment, or no conda-pack.
        ConfigError: the archive that the spec names is not there.
    """
    shipped = shipped_environment(resolved, run_folder)
    if shipped is None:
        return
    if not _is_made_here(resolved.spec):
        if not _URL.match(shipped) and not Path(shipped).is_file():
            raise ConfigError(
                f"environment.pack is {resolved.spec.environment.pack!r}, but there is no file {shipped}",
                "Name a .tar.gz or .zip, relative to the spec, or write venv or conda.",
            )
        return
    cache = PackCache.of_environment(environ)
    prefix = Path(sys.prefix) if prefix is None else prefix
    level = resolved.spec.environment.pack_level
    archive = cache.venv(prefix, level, tell) if resolved.spec.environment.pack == "venv" else cache.conda(prefix, level, tell)
    target = Path(shipped)
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(archive, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackCache:
    """Packed environments below `folder`, one folder each, named after what is in it."""

    folder: Path

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> PackCache:
        """`$TFOS_HOME/cache/environments`."""
        home = environ.get("TFOS_HOME") or "~/.tfos"
        return cls(folder=below(Path.cwd(), home) / "cache" / "environments")

    def venv(self, prefix: Path, level: int, tell: Tell = lambda _: None) -> Path:
        """The archive of a virtual environment, packed when it has changed since.

        Raises:
            EnvironmentCheckError: it can not be packed.
        """
        from tfos_cli.submit.venv_files import inspect_venv

        venv = inspect_venv(prefix)
        key = _key("venv", level, _venv_signature(venv))
        return self._archive(key, venv.lock, lambda target: _pack_venv(venv, target, level, tell))

    def conda(self, prefix: Path, level: int, tell: Tell = lambda _: None) -> Path:
        """The archive of a conda environment, packed by conda-pack when it has changed since.

        Raises:
            EnvironmentCheckError: it is none, conda-pack is missing, or refuses.
        """
        if not (prefix / "conda-meta").is_dir():
            raise EnvironmentCheckError(
                f"environment.pack is 'conda', but the Python that runs tfos ({prefix}) is no conda environment",
                "Activate one that has tfos, or use environment.pack: venv.",
            )
        lock = sorted(path.stem for path in (prefix / "conda-meta").glob("*.json"))
        key = _key("conda", level, _conda_signature(prefix))
        return self._archive(key, lock, lambda target: _pack_conda(prefix, target, level, tell))

    def _archive(self, key: str, lock: Iterable[str], pack: Callable[[Path], None]) -> Path:
        entry = self.folder / key
        archive = entry / _ARCHIVE
        if archive.is_file():
            os.utime(entry)
            return archive
        import tempfile

        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".packing-", dir=self.folder) as made:
            pack(Path(made) / _ARCHIVE)
            (Path(made) / _LOCK).write_text("".join(f"{line}\n" for line in lock), encoding="utf-8")
            entry.mkdir(exist_ok=True, mode=0o700)
            # The archive last: an entry counts when it is there, and two that pack at a time write the same.
            for name in (_LOCK, _ARCHIVE):
                (Path(made) / name).replace(entry / name)
        self._prune()
        return archive

    def _prune(self) -> None:
        entries = sorted(self.folder.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for entry in entries[_KEPT:]:
            shutil.rmtree(entry, ignore_errors=True)


def _is_made_here(spec: JobSpec) -> bool:
    return spec.environment.pack in ("venv", "conda")


def _pack_venv(venv: VirtualEnvironment, target: Path, level: int, tell: Tell) -> None:
    from tfos_cli.submit.venv_archive import write_archive

    tell(f"packing the virtual environment {venv.prefix} ({venv.bytes >> 20} MB); the next run finds it packed")
    write_archive(venv, target, level=level)


def _pack_conda(prefix: Path, target: Path, level: int, tell: Tell) -> None:
    from importlib import metadata

    from tfos_cli.submit.venv_files import refuse_editable

    try:
        conda_pack: Any = importlib.import_module("conda_pack")
    except ImportError:
        raise EnvironmentCheckError(
            f"environment.pack is 'conda', but {prefix} has no conda-pack",
            "Install it with 'conda install -c conda-forge conda-pack', or 'pip install conda-pack'.",
        ) from None
    refuse_editable(prefix, metadata.distributions(path=[str(site) for site in prefix.glob("lib/python*/site-packages")]))
    tell(f"packing the conda environment {prefix}; the next run finds it packed")
    filters = [("exclude", pattern) for pattern in _LEFT_OUT_OF_CONDA]
    try:
        conda_pack.pack(
            prefix=str(prefix),
            output=str(target),
            compress_level=level,
            n_threads=os.cpu_count() or 1,
            filters=filters,
            # It would count an engine that was installed so, which does not travel in the archive.
            ignore_editable_packages=True,
        )
    except conda_pack.CondaPackException as exc:
        said = " ".join(str(exc).split())
        raise EnvironmentCheckError(f"conda-pack can not pack {prefix}: {said}", "Repair the environment as it says.") from exc


#: As for virtual environments: Spark brings pyspark, the engine travels on its own, and headers are for compilers.
_LEFT_OUT_OF_CONDA = (
    "*/site-packages/pyspark/*", "*/site-packages/pyspark-*", "*/site-packages/tfos*", "*/site-packages/_editable_impl_tfos*",
    "*/site-packages/tensorflow/include/*", "pkgs/*", "include/*",
)  # fmt: skip


def _venv_signature(venv: VirtualEnvironment) -> Iterable[str]:
    """All that the archive is made of. Sizes and times of files rather than their contents: 2 GB take seconds to read."""
    yield f"{venv.prefix} {venv.base} {venv.python} {sys.version}"
    yield from venv.lock
    for entry in venv.entries:
        if not entry.is_byte_code:  # any run of the interpreter may write it
            yield f"{entry.name} {entry.mode} {entry.size} {entry.modified_ns} {entry.link}"


def _conda_signature(prefix: Path) -> Iterable[str]:
    """Conda's own records, and those of pip, which change with every installation."""
    yield str(prefix)
    records = [*(prefix / "conda-meta").glob("*"), *prefix.glob("lib/python*/site-packages/*.dist-info/RECORD")]
    for path in sorted(records):
        status = path.stat()
        yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _key(kind: str, level: int, signature: Iterable[str]) -> str:
    import hashlib

    digest = hashlib.sha256(f"{_RECIPE} {kind} {level}\n".encode())
    for line in signature:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _link(archive: Path, target: Path) -> None:
    """The same file under a second name, so that it stays as long as the run, or a copy on another file system."""
    try:
        os.link(archive, target)
    except OSError:
        shutil.copyfile(archive, target)
