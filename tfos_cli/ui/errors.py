"""An error as text with a hint for people, or as a JSON object for programs."""

from __future__ import annotations

import re
from dataclasses import asdict, is_dataclass
from typing import Any

from tfos_cli.exit_codes import ExitCode, exit_code_of
from tfos_cli.ui.console import Console, Style
from tfos_core.errors import TfosError
from tfos_core.shim.redaction import hide_url_passwords

__all__ = ("describe", "harmless", "hint_of", "sentence", "show")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def sentence(error: BaseException) -> str:
    """What happened, in one sentence without passwords."""
    return hide_url_passwords(_sentence(error))


def _sentence(error: BaseException) -> str:
    if isinstance(error, TfosError):
        return error.message or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
        return f"{names}: {error.strerror}" if names else error.strerror
    return f"{type(error).__name__}: {error}"


def hint_of(error: BaseException) -> str | None:
    """What to do next, where the error says so or it is a defect of ours."""
    if isinstance(error, TfosError):
        return error.hint
    if exit_code_of(error) is ExitCode.INTERNAL:
        return "This is a defect of tfos. Run the command again with --debug to see where it happened, and report that."
    return None


def harmless(text: str) -> str:
    """The text with its control characters written out, so that what a node or a file name says can not steer the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def describe(error: BaseException, code: int) -> dict[str, Any]:
    """The error as a JSON object: type, message, hint, exit code, and the fields that its class adds."""
    fields = vars(error).items() if isinstance(error, TfosError) else ()
    details = {key: _plain(value) for key, value in fields if not key.startswith("_") and key not in ("message", "hint")}
    head = {"type": type(error).__name__, "message": sentence(error), "hint": hint_of(error), "exit_code": code}
    return {"error": head | {"details": details}}


def show(console: Console, error: BaseException, code: int) -> None:
    """Tell the user: JSON on stdout when that was asked for, else text on stderr."""
    if console.json:
        console.result_json(describe(error, code))
        return
    hint = hint_of(error)
    console.error(harmless(sentence(error)), None if hint is None else harmless(hint))
    remote = getattr(error, "remote_traceback", "") or "\n".join(getattr(error, "last_lines", ()))
    if remote:
        console.note(console.styled(harmless(remote.rstrip()), Style.DIM))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
