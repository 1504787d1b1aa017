"""From a run's folder to the members of its report, and from those to one archive."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tfos_cli.bundle.scrub import Scrubber, secret_values
from tfos_cli.bundle.versions import describe_versions
from tfos_cli.runs import Run
from tfos_core.errors import ConfigError
from tfos_core.json_text import parse_json
from tfos_core.shim.status import STATUS_FILE

__all__ = ("ENV_CHECK_FILE", "Report", "collect", "write_archive")

#: What `tfos env-check` found, in a run's folder or, for the whole machine, in the home of tfos.
ENV_CHECK_FILE = "env-check.json"

#: The end of a log; what came before is seldom what it is about, and a report has to be small enough for a mail.
_MOST_BYTES = 4 << 20
_MOST_EVENTS_BYTES = 16 << 20

_README = """\
Report on run {run} of tfos.

{members}

Secrets: {count} texts that are secret, or look like it, were replaced by [secret]. Values of the spec's `environment.secrets`
are not recorded in the first place. Programs print what they like, though: look through nodes/ and driver.log before you send
this on.
"""
_WHAT: Mapping[str, str] = {
    "spec.resolved.yaml": "the spec after precedence, and where each value came from",
    "command.json": "the spark-submit command",
    "versions.json": "tfos, Python, Java, Spark and packages of the machine that wrote this report",
    "events.jsonl": "what happened",
    STATUS_FILE: "the state and the result",
    "driver.log": "end of the output of spark-submit and of the driver",
    "follower.log": "end of the output of the process that followed a detached run",
    ENV_CHECK_FILE: "what tfos env-check found",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Members of the archive by name, and how many secrets were taken out of them."""

    run_id: str
    members: Mapping[str, bytes]
    secrets: int


def collect(run: Run, environ: Mapping[str, str], *, lines: int) -> Report:
    """Read a run's folder; what is missing or can not be read is left out, or said in its place.

    Args:
        lines: how many last lines of each log to take.
    """
    plan = _json(run.plan_path) or {}
    spec = _spec(run.spec_path)
    names = [*_names(plan.get("secrets")), *_names((spec.get("environment") or {}).get("secrets"))]
    scrubber = Scrubber(secret_values([plan, spec], environ=environ, names=names))
    members = {name: data for name, data in _members(run, environ, scrubber, lines) if data is not None}
    listed = "\n".join(f"{name:<28}{_WHAT.get(name, 'last lines of this node')}" for name in sorted(members))
    readme = _README.format(run=run.id, members=listed, count=scrubber.count)
    return Report(run_id=run.id, members={"README.txt": readme.encode()} | members, secrets=scrubber.count)


def write_archive(report: Report, path: Path, *, force: bool = False) -> None:
    """Write a report as `.tar.gz`, readable by its owner only; whole or not at all.

    Raises:
        ConfigError: the file exists, or can not be written.
    """
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already", "Name another file with --output, or use --force to replace it.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, data in report.members.items():
                    member = tarfile.TarInfo(f"tfos-report-{report.run_id}/{name}")
                    member.size, member.mode = len(data), 0o600
                    archive.addfile(member, io.BytesIO(data))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise ConfigError(f"{path} can not be written: {exc.strerror or exc}", "Name another file with --output.") from exc


def _members(run: Run, environ: Mapping[str, str], scrubber: Scrubber, lines: int) -> Iterator[tuple[str, bytes | None]]:
    yield "spec.resolved.yaml", _text(run.spec_path, scrubber)
    yield "command.json", _document(run.command_path, scrubber)
    yield STATUS_FILE, _document(run.folder / STATUS_FILE, scrubber)
    yield "events.jsonl", _events(run.events_path, scrubber)
    yield "versions.json", _encoded(scrubber.value(describe_versions(environ)))
    places = (run.folder / ENV_CHECK_FILE, run.folder.parent.parent / ENV_CHECK_FILE)
    checked = next((path for path in places if path.is_file()), None)
    if checked is not None:
        yield ENV_CHECK_FILE, _document(checked, scrubber)
    for path in (run.driver_log, run.folder / "follower.log"):
        yield path.name, _text(path, scrubber, lines=lines)
    if run.nodes_folder.is_dir():
        for path in sorted(run.nodes_folder.iterdir()):
            yield f"nodes/{path.name}", _text(path, scrubber, lines=lines)


def _text(path: Path, scrubber: Scrubber, *, lines: int | None = None) -> bytes | None:
    data = _tail(path, _MOST_BYTES)
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    if lines is not None:
        text = "".join(text.splitlines(keepends=True)[-lines:])
    return scrubber.text(text).encode()


def _document(path: Path, scrubber: Scrubber) -> bytes | None:
    """A JSON file; one that is damaged is taken as text."""
    document = _json(path)
    return _text(path, scrubber) if document is None else _encoded(scrubber.value(document))


def _events(path: Path, scrubber: Scrubber) -> bytes | None:
    data = _tail(path, _MOST_EVENTS_BYTES)
    if data is None:
        return None
    lines = []
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            lines.append(json.dumps(scrubber.value(parse_json(line)), separators=(",", ":")))
        except ValueError:
            lines.append(scrubber.text(line))
    return "".join(f"{line}\n" for line in lines).encode()


def _tail(path: Path, most: int) -> bytes | None:
    """The last `most` bytes of a file, from the beginning of a line on; None when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return None
    return data if size <= most else data.partition(b"\n")[2]


def _json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _spec(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _encoded(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
