"""Values that do not come from the spec file: `--set`, `--conf`, `-e` and `TFOS_SET_*`, as one list of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfos_cli.spec.errors import Problem
from tfos_cli.spec.yaml_source import Located, YamlProblem, is_usable, parse_yaml

__all__ = (
    "ENVIRONMENT_NAMES",
    "SET_PREFIX",
    "Origin",
    "Setting",
    "environment_settings",
    "flag_settings",
    "split_key",
    "unknown_names",
)

SET_PREFIX = "TFOS_SET_"
ENVIRONMENT_NAMES = ("TFOS_HOME", "TFOS_SERVER_HOST", "TFOS_SERVER_PORT")
"""Names that tfos reads and that are no keys of the spec."""
FREE_KEYS = (("spark", "conf"), ("environment", "vars"), ("data", "options"))
"""Mappings with names of the user's: what follows is one key, dots and all."""

Pair = str | tuple[str, str]
"""`NAME=VALUE`, or its two parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was set: for the record (`file:7`, `environment:NAME`, `flag`) and for messages (`job.yaml:7`, `--set a`)."""

    provenance: str
    shown: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value for one key of the spec."""

    path: tuple[str, ...]
    value: Located
    origin: Origin


def flag_settings(
    *, sets: Sequence[str], conf: Sequence[Pair], env_vars: Sequence[Pair], master: str | None
) -> tuple[list[Setting], list[Problem]]:
    """The settings of the command line: `--master`, `--conf`, `-e`, then `--set`; later ones win."""
    settings: list[Setting] = []
    problems: list[Problem] = []
    if master is not None:
        settings.append(_text_setting(("spark", "master"), master, "--master"))
    for flag, parent, entries in (("--conf", ("spark", "conf"), conf), ("-e", ("environment", "vars"), env_vars)):
        for entry in entries:
            key, equals, value = _split(entry)
            if not equals or not key:
                # Not quoted: a value without its name could be a password.
                problems.append(Problem(where=flag, message=f"{flag} takes NAME=VALUE", expected="NAME=VALUE"))
            else:
                _parse_into(settings, problems, (*parent, key), value, Origin(provenance="flag", shown=f"{flag} {key}"))
    for entry in sets:
        key, equals, value = _split(entry)
        if not equals or not key:
            problems.append(Problem(where="--set", message=f"--set takes KEY=VALUE, not {key!r}", expected="KEY=VALUE"))
        else:
            _parse_into(settings, problems, split_key(key), value, Origin(provenance="flag", shown=f"--set {key}"))
    return settings, problems


def _split(entry: Pair) -> tuple[str, str, str]:
    key, equals, value = entry.partition("=") if isinstance(entry, str) else (entry[0], "=", entry[1])
    return key.strip(), equals, value


def environment_settings(environ: Mapping[str, str]) -> tuple[list[Setting], list[Problem]]:
    """The settings of `TFOS_SET_<KEY>` with `__` for a dot, in the order of their names."""
    settings: list[Setting] = []
    problems: list[Problem] = []
    for name in sorted(environ):
        if name.startswith(SET_PREFIX) and len(name) > len(SET_PREFIX):
            origin = Origin(provenance=f"environment:{name}", shown=name)
            _parse_into(settings, problems, _key_of_name(name), environ[name], origin)
    return settings, problems


def unknown_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names that start with `TFOS_` and that nothing reads; mostly typing errors."""
    return tuple(sorted(name for name in environ if name.startswith("TFOS_") and not _is_read(name)))


def _is_read(name: str) -> bool:
    return name in ENVIRONMENT_NAMES or (name.startswith(SET_PREFIX) and name != SET_PREFIX)


def split_key(key: str) -> tuple[str, ...]:
    """`spark.conf.spark.ui.port` as (`spark`, `conf`, `spark.ui.port`); other keys at every dot."""
    parts = tuple(key.split("."))
    for free in FREE_KEYS:
        if parts[: len(free)] == free and len(parts) > len(free):
            return (*free, ".".join(parts[len(free) :]))
    return parts


def _key_of_name(name: str) -> tuple[str, ...]:
    """Parts in capitals are meant in small letters, except names of environment variables, which keep `__` and their case."""
    rest = name.removeprefix(SET_PREFIX)
    parts = rest.split("__")
    if [part.lower() for part in parts[:2]] == ["environment", "vars"] and len(parts) > 2:
        return ("environment", "vars", "__".join(parts[2:]))
    return split_key(".".join(part.lower() if part.isupper() else part for part in parts))


def _text_setting(path: tuple[str, ...], text: str, shown: str) -> Setting:
    return Setting(path=path, value=Located(value=text, line=1, text=text), origin=Origin(provenance="flag", shown=shown))


def _parse_into(settings: list[Setting], problems: list[Problem], path: tuple[str, ...], text: str, origin: Origin) -> None:
    """Parse the value as YAML; a free key takes its text as it is, so that no value there needs quotes."""
    if not is_usable(text):
        problem = YamlProblem("it is no text that can be passed on", hint="Use UTF-8 text without NUL.")
        problems.append(_value_problem(path, problem, origin))
        return
    if path[:-1] in FREE_KEYS:
        settings.append(Setting(path=path, value=Located(value=text, line=1, text=text), origin=origin))
        return
    try:
        value, found = parse_yaml(text)
    except YamlProblem as exc:
        problems.append(_value_problem(path, exc, origin))
        return
    problems.extend(_value_problem((*path, *map(str, problem.path)), problem, origin) for problem in found)
    settings.append(Setting(path=path, value=value, origin=origin))


def _value_problem(path: Sequence[str], problem: YamlProblem, origin: Origin) -> Problem:
    field = ".".join(path)
    return Problem(
        where=origin.shown,
        field=field,
        message=f"the value of {field} can not be read: {problem.message}",
        expected="a YAML value",
        hint=problem.hint or "Quote the value.",
    )


def settings_of(located: Located, file: str) -> Iterator[Setting]:
    """The settings of a spec file: one per key at the top."""
    if isinstance(located.value, dict):
        for key, value in located.value.items():
            origin = Origin(provenance=f"file:{value.line}", shown=f"{file}:{value.line}", line=value.line)
            yield Setting(path=(key,), value=value, origin=origin)
