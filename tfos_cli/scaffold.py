"""The templates of `tfos init`: files that lie in `tfos_cli/templates/NAME/`, each with `.txt` behind its name.

The ending keeps a template's program from being taken for a module of this package.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from tfos_core.errors import ConfigError

__all__ = ("TEMPLATES", "Template", "find_template", "write_template")

_ENDING = ".txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A starting point for a job.

    Attributes:
        name: name of its folder.
        summary: what it is for, in one line.
        commands: what to run afterwards, with `{dir}/` for where the files are.
    """

    name: str
    summary: str
    commands: tuple[str, ...] = ("tfos validate {dir}job.yaml", "tfos train {dir}job.yaml")

    def files(self) -> dict[str, bytes]:
        """Relative path to content of every file, in the order of their names."""
        return dict(sorted(_files_below(resources.files("tfos_cli") / "templates" / self.name, "").items()))

    def next_commands(self, folder: Path) -> tuple[str, ...]:
        """What to run when the files are in `folder`."""
        prefix = "" if folder == Path() else f"{folder.as_posix()}/"
        return tuple(command.replace("{dir}", prefix) for command in self.commands)


TEMPLATES: Mapping[str, Template] = {
    template.name: template
    for template in (
        Template(name="feed-dataset", summary="Several nodes train one model on a tf.data.Dataset that Spark feeds."),
        Template(name="feed-loop", summary="One node takes batches from Spark in a loop of its own and stops when it has enough."),
        Template(name="files", summary="Several nodes train one model and read their shares of the files themselves."),
        Template(
            name="parameter-server", summary="Workers train at their own pace, fed by Spark; a parameter server has the weights."
        ),
        Template(
            name="saved-model",
            summary="A model is trained and exported, and answers rows without a program.",
            commands=(
                "tfos validate {dir}train.yaml",
                "tfos train {dir}train.yaml",
                "tfos validate {dir}infer.yaml",
                "tfos infer {dir}infer.yaml",
            ),
        ),
        Template(
            name="feed-inference",
            summary="A program on the nodes answers the rows that Spark feeds, one result for each.",
            commands=("tfos validate {dir}job.yaml", "tfos infer {dir}job.yaml"),
        ),
        Template(
            name="pipeline",
            summary="A driver program trains the model as a stage of a Spark ML pipeline.",
            commands=("python {dir}app.py", "tfos infer {dir}infer.yaml"),
        ),
        Template(name="streaming", summary="One node trains on files for as long as they are dropped into a folder."),
        Template(name="parallel", summary="Independent instances of one function, each with a result of its own."),
    )
}


def find_template(name: str) -> Template:
    """The template of this name.

    Raises:
        ConfigError: there is none.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    close = difflib.get_close_matches(name, TEMPLATES, n=1, cutoff=0.4)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise ConfigError(f"there is no template {name!r}", f"{hint}There are {', '.join(TEMPLATES)}.")


def write_template(template: Template, folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write the files of a template into a folder, which is made when it is missing; returns their paths.

    Either all files are written, or none: what is in the way is found before the first one is.

    Args:
        force: replace files that are there. Others in the folder are never touched.

    Raises:
        ConfigError: files are in the way, or the folder can not be written.
    """
    files = {folder / name: content for name, content in template.files().items()}
    in_the_way = [str(path) for path in files if os.path.lexists(path)]
    if in_the_way and not force:
        exist = "exists already" if len(in_the_way) == 1 else "exist already"
        raise ConfigError(f"{', '.join(in_the_way)} {exist}", "Name another folder, or use --force to replace them.")
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as exc:
        raise ConfigError(f"{exc.filename or folder} can not be written: {exc.strerror or exc}", "Name another folder.") from exc
    return tuple(files)


def _files_below(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _files_below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_ENDING):
            found[prefix + entry.name.removesuffix(_ENDING)] = entry.read_bytes()
    return found
