"""`load_spec`: a spec file and what overrides it, to a `ResolvedSpec`, or to one error that lists every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tfos_cli.spec.errors import Problem, SpecError
from tfos_cli.spec.formats import guess_format
from tfos_cli.spec.keras import KerasChoice, choose_keras, installed_version
from tfos_cli.spec.memory import OverheadChoice, choose_overhead
from tfos_cli.spec.model import DataFormat, Infer, JobSpec
from tfos_cli.spec.overrides import Setting, environment_settings, flag_settings, settings_of, unknown_names
from tfos_cli.spec.problems import dotted, shown, validation_problems
from tfos_cli.spec.resolve import Layers, merge, provenance
from tfos_cli.spec.yaml_source import MOST_BYTES, YamlProblem, parse_yaml

__all__ = ("ResolvedSpec", "load_spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpec:
    """A spec after precedence, with what is computed from it.

    `path` is the absolute path of the spec file. `provenance` maps each dotted leaf key to `default`, `file:LINE`,
    `environment:NAME` or `flag`; `shown` maps keys that were set to the place as messages name it (`job.yaml:7`, `--set a.b`).
    `unknown_environment` are `TFOS_` names that nothing reads. `verb` is what is to be done with the spec, None for only looking.
    """

    spec: JobSpec
    path: Path
    provenance: Mapping[str, str]
    keras: KerasChoice
    memory_overhead: OverheadChoice
    data_format: DataFormat | None = None
    unknown_environment: tuple[str, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    verb: Literal["train", "infer"] | None = None

    @property
    def model_inference(self) -> Infer | None:
        """The section `infer` of a job that is nothing but a saved model over rows: no program of the user's on nodes."""
        infer = self.spec.infer
        if infer is None or infer.export_dir is None or self.verb == "train":
            return None
        return infer if self.verb == "infer" or self.spec.entrypoint is None else None

    @property
    def folder(self) -> Path:
        """The folder that paths of the spec are relative to."""
        return self.path.parent

    def place_of(self, key: str) -> str:
        """Where a dotted key was set, as messages name it; `default` when it was not set."""
        return self.shown.get(key, "default")


def load_spec(
    path: str | Path,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    conf: Sequence[str | tuple[str, str]] = (),
    env_vars: Sequence[str | tuple[str, str]] = (),
    master: str | None = None,
    version_of: Callable[[str], str | None] = installed_version,
    verb: Literal["train", "infer"] | None = None,
) -> ResolvedSpec:
    """Read, override and validate a spec. Nothing outside the arguments counts, so callers pass `os.environ`.

    Args:
        path: The spec file.
        overrides: `KEY=VALUE` of `--set`.
        environ: Where `TFOS_SET_*` is looked up. Default: nowhere.
        conf: `NAME=VALUE` of `--conf`, split already or not.
        env_vars: `NAME=VALUE` of `-e`, split already or not.
        master: The value of `--master`; None when it was not given.
        version_of: How installed distributions are looked up, for `keras: auto`.
        verb: What is to be done with the spec.

    Raises:
        SpecError: the file can not be read, or something in it or in an override is wrong; lists every mistake.
    """
    environ = {} if environ is None else environ
    file = str(path)
    in_file, problems = _read(file)
    from_environment, environment_problems = environment_settings(environ)
    from_flags, flag_problems = flag_settings(sets=overrides, conf=conf, env_vars=env_vars, master=master)
    layers = merge(in_file, from_environment, from_flags)
    problems += [*environment_problems, *flag_problems, *layers.problems]
    try:
        spec = JobSpec.from_dict(layers.data)
    except ValidationError as error:
        known = {problem.field for problem in problems if problem.field}
        problems += [problem for problem in validation_problems(error, layers, file) if problem.field not in known]
        spec = None
    if problems or spec is None:
        raise SpecError.of(file, tuple(sorted(problems, key=_place)))
    return ResolvedSpec(
        spec=spec,
        path=Path(path).absolute(),
        provenance=provenance(spec.to_dict(), layers),
        keras=choose_keras(spec, version_of),
        memory_overhead=choose_overhead(spec),
        data_format=(spec.data.format or guess_format(spec.data.path)) if spec.data else None,
        unknown_environment=unknown_names(environ),
        shown=_shown_places(layers),
        verb=verb,
    )


def _place(problem: Problem) -> tuple[bool, int]:
    return problem.line is None, problem.line or 0


def _shown_places(layers: Layers) -> dict[str, str]:
    return {".".join(map(str, path)): origin.shown for path, origin in layers.origins.items()}


def _read(file: str) -> tuple[list[Setting], list[Problem]]:
    """The settings of the file, and problems that leave the rest of it readable."""
    text = _text_of(file)
    try:
        located, found = parse_yaml(text)
    except YamlProblem as exc:
        raise _file_error(file, exc.message, exc.line, exc.hint) from None
    if located.value is None:
        raise _file_error(
            file,
            "the file is empty, expected the keys of a job spec",
            None,
            "The folder jobspecs of the tfos repository has specs to start from.",
        )
    if not isinstance(located.value, dict):
        given = shown(located.value, ())
        raise _file_error(file, f"the file holds {given}, expected a mapping of keys and values", located.line, "")
    return list(settings_of(located, file)), [_yaml_problem(file, problem) for problem in found]


def _text_of(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise _file_error(
            file, "there is no such file", None, "The folder jobspecs of the tfos repository has specs to start from."
        ) from None
    except IsADirectoryError:
        raise _file_error(file, "this is a folder, expected a spec file", None, "") from None
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise _file_error(file, f"the file can not be read: {reason}", None, "") from None
    if len(content) > MOST_BYTES:
        raise _file_error(file, f"the file is larger than {MOST_BYTES >> 20} MiB, which no spec is", None, "")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise _file_error(file, f"byte 0x{content[exc.start]:02x} is not UTF-8", line, "Save the file as UTF-8 text.") from None


def _file_error(file: str, message: str, line: int | None, hint: str) -> SpecError:
    where = f"{file}:{line}" if line else file
    return SpecError.of(file, (Problem(where=where, line=line, message=message, hint=hint),))


def _yaml_problem(file: str, problem: YamlProblem) -> Problem:
    name = dotted(problem.path)
    message = f"{name}: {problem.message}" if name else problem.message
    return Problem(where=f"{file}:{problem.line}", line=problem.line, field=name, message=message, hint=problem.hint)
