"""Asking a streaming job to stop: where its driver listens, what proves the right to ask, and what comes back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from tfos_cli.exit_codes import ExitCode
from tfos_cli.runs import Run
from tfos_core import events
from tfos_core.errors import AuthenticationError, ConfigError, ReservationError, ReservationTimeoutError, TfosError
from tfos_core.json_text import parse_json
from tfos_core.reservation import Client, Right
from tfos_core.reservation.handshake import SECRET_BYTES
from tfos_core.shim.streaming import SECRET_FILE
from tfos_core.streaming.streams import NOT_A_STREAM, STREAM_ENDED

__all__ = ("Stopped", "StreamRefusedError", "StreamUnreachableError", "Target", "ask", "fed_by", "read_secret", "target_of_run")

E = TypeVar("E", bound=events.Event)

#: A driver that does not listen is asked again for so long, in seconds.
_CONNECT_S = 10.0
_MOST_SECRET_BYTES = 4096


class StreamRefusedError(TfosError):
    """The driver does not take the word of whoever asks."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.ENVIRONMENT


class StreamUnreachableError(TfosError):
    """Nobody answers for the stream, or not in time."""

    run_exit_code: ClassVar[ExitCode] = ExitCode.SUBMISSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server of a cluster; `name` is what to call it."""

    name: str
    host: str
    port: int
    secret: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What a stream had fed when it ended."""

    batches: int
    rows: int


def target_of_run(run: Run) -> Target:
    """How to reach the driver of a run.

    Raises:
        ConfigError: it is no streaming job.
        StreamUnreachableError: it does not feed yet, or no more.
    """
    if not _is_streaming(run):
        raise ConfigError(f"run {run.id} is not a streaming job", f"'tfos cancel {run.id}' stops it.")
    if run.status().record:
        raise StreamUnreachableError(
            f"the driver of run {run.id} is on the cluster, and the key to its stream does not leave it",
            f"'tfos cancel {run.id}' ends it; a stream that is stopped like this needs spark.deploy_mode: client.",
        )
    address = _last(run, events.ReservationServerStarted)
    try:
        secret = read_secret(run.folder / SECRET_FILE)
    except ConfigError:
        secret = None
    if address is None or secret is None:
        raise StreamUnreachableError(
            f"the stream of run {run.id} is not being fed: the cluster is not ready, or down again",
            f"'tfos status {run.id}' shows how far it is.",
        )
    return Target(name=f"run {run.id}", host=str(address.host), port=int(address.port), secret=secret)


def fed_by(run: Run) -> Stopped | None:
    """What the stream of a run had fed when it ended; None while it goes on."""
    found = _last(run, events.StreamFinished)
    return None if found is None else Stopped(batches=int(found.batches), rows=int(found.rows))


def read_secret(path: Path) -> bytes:
    """The secret in a file: hexadecimal digits, as in a run record, or the 32 bytes themselves.

    Raises:
        ConfigError: there is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_SECRET_BYTES + 1)
    except OSError as exc:
        raise ConfigError(
            f"the secret can not be read from {path}: {exc.strerror or exc}", "Name the file with --secret-file."
        ) from exc
    if not SECRET_BYTES <= len(data) <= _MOST_SECRET_BYTES:
        size = f"more than {_MOST_SECRET_BYTES}" if len(data) > _MOST_SECRET_BYTES else str(len(data))
        raise ConfigError(f"{path} holds {size} bytes, which is no secret of a cluster", "Name the file with --secret-file.")
    try:
        return bytes.fromhex(data.decode("ascii").strip())
    except ValueError:
        return data


def ask(target: Target, *, timeout: float) -> Stopped:
    """Ask for the end of the stream and wait until what was in flight is fed.

    Args:
        timeout: seconds to wait for it.

    Raises:
        ConfigError: the cluster is fed no stream.
        StreamRefusedError: the secret is wrong.
        StreamUnreachableError: nobody answers there, or the stream did not end in time.
    """
    where = f"{target.host}:{target.port}"
    try:
        with Client((target.host, target.port), secret=target.secret, right=Right.STOP, timeout=_CONNECT_S) as client:
            client.request_stop()
            message = client.receive(timeout)
    except AuthenticationError as exc:
        raise StreamRefusedError(
            f"the driver of {target.name} at {where} refused: {exc.message}", "Is this the secret of this very run?"
        ) from exc
    except ReservationTimeoutError as exc:
        raise StreamUnreachableError(
            f"{target.name} was asked to stop, and its batch in flight is not fed after {timeout:g} s",
            "It ends by itself when that is done; --timeout waits longer.",
        ) from exc
    except ReservationError as exc:
        raise StreamUnreachableError(
            f"the driver of {target.name} does not answer at {where}: {exc.message}",
            "Does the job still run? 'tfos runs' shows it.",
        ) from exc
    if message.get("op") == NOT_A_STREAM:
        raise ConfigError(f"the cluster at {where} is not fed a stream", "Only streaming jobs can be stopped like this.")
    if message.get("op") != STREAM_ENDED:
        raise StreamUnreachableError(
            f"the driver of {target.name} answered {message.get('op')!r}", "Use the same tfos on both sides."
        )
    return Stopped(batches=int(message["batches"]), rows=int(message["rows"]))


def _is_streaming(run: Run) -> bool:
    try:
        plan = parse_json(run.plan_path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"the plan of run {run.id} can not be read: {exc}", f"Look into {run.folder}.") from exc
    return isinstance(plan, dict) and plan.get("stream") is not None


def _last(run: Run, kind: type[E]) -> E | None:
    """The last event of a kind."""
    try:
        text = run.events_path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError):  # half a line, of this moment
            found = events.parse_line(line)
            if found is not None and isinstance(found[1], kind):
                return found[1]
    return None
