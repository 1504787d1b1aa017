"""Takes secret values out of text before it is written or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ("MASK", "Redactor", "has_url_password", "hide_url_passwords")

MASK = "[secret]"

#: A shorter value hides nothing and would tear holes into ordinary text.
_SHORTEST = 4

#: scheme://user:password@host; bounded, so that long lines cost no more than their length.
_URL_PASSWORD = re.compile(r"""(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/:@"']{0,200}:)[^\s/@"']{1,500}(?=@)""")


def has_url_password(text: str) -> bool:
    """Whether a URL in the text has a password, as in `https://user:password@host`."""
    return "@" in text and _URL_PASSWORD.search(text) is not None


def hide_url_passwords(text: str, mask: str = MASK) -> str:
    """The text without the passwords of its URLs."""
    return _URL_PASSWORD.sub(rf"\1{mask}", text) if "@" in text else text


class Redactor:
    """Replaces secret values, long lines of secret values that have several lines, and passwords in URLs by a mask."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts: set[str] = set()
        for secret in secrets:
            parts |= {secret, secret.strip()} | {line.strip() for line in secret.splitlines() if len(line.strip()) >= 2 * _SHORTEST}
        # the longest first, so that a secret that contains another one is replaced as a whole
        longest_first = sorted((part for part in parts if len(part) >= _SHORTEST), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def of_environment(cls, names: Iterable[str], environ: Mapping[str, str]) -> Redactor:
        """For secrets that are variables of an environment; unset ones are nothing to hide."""
        return cls(environ[name] for name in names if name in environ)

    def text(self, text: str) -> str:
        """The text without secrets."""
        return hide_url_passwords(self._pattern.sub(MASK, text) if self._pattern else text)

    def value(self, value: Any) -> Any:
        """A JSON value without secrets in any of its strings, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.value(entry) for entry in value]
        if isinstance(value, tuple):
            return tuple(self.value(entry) for entry in value)
        return value
