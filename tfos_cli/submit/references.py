"""`FILE.py:function` and `package.module:function`: which module that is on the driver and on executors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_cli.spec.places import below
from tfos_core.errors import ConfigError
from tfos_core.jobplan import FunctionRef

if TYPE_CHECKING:
    from tfos_cli.spec.loader import ResolvedSpec

__all__ = ("RESERVED_MODULES", "Reference", "parse_reference", "references_of")

#: A file of one of these names would be imported in place of the real module by everything in the same process.
RESERVED_MODULES = frozenset(sys.stdlib_module_names) | {
    "absl", "grpc", "keras", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "tensorboard", "tensorflow", "tf_keras", "tfos_cli",
    "tfos_core", "tfos_driver",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A function that a spec names; `file` is None when its module is installed everywhere."""

    field: str
    shown: str
    module: str
    function: str
    file: Path | None

    def to_plan(self) -> FunctionRef:
        """As the driver gets it."""
        return FunctionRef(module=self.module, function=self.function, shown=self.shown)


def parse_reference(field: str, text: str, folder: Path) -> Reference:
    """Split a reference; a file is relative to `folder` and is imported under its own name, `apps/digits.py` as `digits`.

    Args:
        field: the key of the spec, for messages.

    Raises:
        ConfigError: not of either form, or the file's name can not be imported.
    """
    place, separator, function = text.rpartition(":")
    if not separator or not place or not function.isidentifier():
        raise ConfigError(
            f"{field} is {text!r}, which is neither FILE.py:function nor package.module:function",
            "Write for example apps/train.py:main_fun.",
        )
    if not place.endswith(".py"):
        if not all(part.isidentifier() for part in place.split(".")):
            raise ConfigError(
                f"{field} is {text!r}, but {place!r} is neither a file that ends in .py nor a module name",
                "Write for example apps/train.py:main_fun or package.module:main_fun.",
            )
        return Reference(field=field, shown=text, module=place, function=function, file=None)
    file = below(folder, place).absolute()
    module = file.stem
    if not module.isidentifier():
        raise ConfigError(
            f"{field} is {text!r}, but a file named {file.name!r} can not be imported",
            "Give it a name of letters, digits and underscores.",
        )
    if module in RESERVED_MODULES:
        raise ConfigError(
            f"{field} is {text!r}, but a module {module!r} exists already, and the file would take its place on every executor",
            f"Rename {file.name}, for example to {module}_job.py.",
        )
    return Reference(field=field, shown=text, module=module, function=function, file=file)


def references_of(resolved: ResolvedSpec) -> tuple[Reference, ...]:
    """Every function that a spec names, the entrypoint first.

    Raises:
        ConfigError: as `parse_reference`.
    """
    folder = resolved.path.absolute().parent
    return tuple(parse_reference(field, text, folder) for field, text in _named(resolved))


def _named(resolved: ResolvedSpec) -> Iterator[tuple[str, str]]:
    spec = resolved.spec
    if spec.entrypoint is not None:
        yield "entrypoint", spec.entrypoint
    if spec.data is not None and spec.data.transform:
        yield "data.transform", spec.data.transform
    if spec.data is not None and spec.data.source:
        yield "data.source", spec.data.source
    if spec.stream is not None and spec.stream.transform:
        yield "stream.transform", spec.stream.transform
