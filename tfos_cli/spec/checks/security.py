"""What a spec gives away, and where files of the job may be unpacked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfos_cli.spec.checks.finding import Case, Finding, Findings, Level
from tfos_cli.spec.places import below
from tfos_core.clear_text import CLEAR_TEXT, encryption_settings
from tfos_core.shim.redaction import has_url_password

__all__ = ("RULES",)


def clear_text(case: Case) -> Findings:
    """Who makes Spark encrypt may think that everything is."""
    encrypted = encryption_settings(case.conf.get)
    if encrypted and case.is_shared:
        field = f"spark.conf.{encrypted[0]}"
        fix = "Let only the hosts of the cluster see one another's traffic (a private network, WireGuard, IPsec): docs/security.md."
        yield case.warning("clear-text", field, f"{encrypted[0]} is on, {CLEAR_TEXT}", fix)


def passwords_in_urls(case: Case) -> Findings:
    """tfos hides them in what it shows; Spark and Python do not."""
    for field, text in _texts(case.spec.to_dict()):
        if has_url_password(text):
            message = "a URL has a password in it, which Spark and the programs of the job write into their logs"
            yield case.warning(
                "password-in-url", field, message, "Name a variable in environment.secrets, or use a credential provider."
            )


def names_of_unpacked_folders(case: Case) -> Findings:
    """Spark makes `file#name` in the working folder of each executor, and follows `..` out of it."""
    for field in ("files", "archives", "py_files", "jars"):
        for text in getattr(case.spec.spark, field):
            _, mark, name = text.partition("#")
            if mark and (not name or name in (".", "..") or "/" in name or "\\" in name or "#" in name):
                message = f"{text!r} would be put at {name!r}, which is no plain name in the working folder"
                yield case.error("unpack-outside", f"spark.{field}", message, "Write a name without a slash after the #.")


def private_home(case: Case) -> Findings:
    """Records of runs are private, if nobody can put another folder in their place."""
    home = case.environ.get("TFOS_HOME") or ""
    folder = below(Path.cwd(), home or "~/.tfos")
    for path in (folder, folder / "runs"):
        try:
            found = path.stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(found.st_mode) and (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) and not found.st_mode & stat.S_ISVTX:
            yield Finding(
                id="home-not-private",
                level=Level.WARNING,
                field="TFOS_HOME",
                value=str(folder),
                source="environment:TFOS_HOME" if home else "default",
                message=f"others than user {os.getuid()} can write {path} (mode {stat.S_IMODE(found.st_mode):o}), where records go",
                fix=f"chmod 700 {path}",
            )


def _texts(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a spec, with its dotted key."""
    for key, value in section.items():
        field = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _texts(value, field)
        else:
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, str):
                    yield field, item


RULES = (clear_text, passwords_in_urls, names_of_unpacked_folders, private_home)
