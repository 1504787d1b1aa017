"""Takes secrets out of text and JSON that leave this machine: values that are known, and what looks like one. Pure.

A run record has no values of `environment.secrets` in it. But programs print what they like, and people put passwords into
variables, arguments and URLs; so what a report carries is cleaned once more, and rather too much than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfos_cli.spec.values import is_secret_name
from tfos_core.shim.redaction import MASK, Redactor

__all__ = ("Scrubber", "secret_values")

#: The end of a name that says secret, as in `db_password`; bounded, so that long lines cost no more than their length.
_NAME = r"(?:secret|passw(?:or)?d|passphrase|token|(?:access|api|private)[._-]?key|credential)[\w.-]{0,40}"
#: A value: quoted, or up to what ends one in text, JSON, YAML, URLs and command lines.
_VALUE = (
    r"""(?:"(?:[^"\\\n]|\\.)*"|\\"(?:[^"\\\n]|\\(?!"))*\\"|'[^'\n]*'|"""  # whole, with the quotes escaped inside JSON, by Python
    r"""[\\"']{0,2}[^\s"'\\,;&)}\]]+)"""  # no quotes, or a line that ends within them
)

#: What is kept is the first group, what is replaced is the rest.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # name=value, "name": value, name: value; a name in the plural, as `max_tokens`, is a count
        rf"""(?i)({_NAME}(?<!tokens)(?<!secrets)\\?["']?[ \t]*[=:][ \t]*){_VALUE}""",
        # --name value, also in a list as Python prints it
        rf"""(?i)(--[\w.-]{{0,40}}?{_NAME}["']?,?[ \t]+)(?!-){_VALUE}""",
        # scheme://user:password@host
        r"""(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/:@"']{0,200}:)[^\s/@"']{1,200}(?=@)""",
        r"""(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}""",
        r"()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"()\b(?:gh[opsu]_|github_pat_|xox[abprs]-|sk-|hf_|glpat-)[A-Za-z0-9_-]{16,}",
        r"()\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]*",
    )
)
#: What stands under a name that says secret and is none, as in TOKENIZERS_PARALLELISM=false; masked everywhere it would tear holes.
_ORDINARY = re.compile(r"(?i)|.{1,5}|true|false|none|null|default|disabled|enabled|[0-9.]+|<hidden>|/.*")
_KEY_BLOCK = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


class Scrubber:
    """Cleans texts, and counts what it replaced.

    Args:
        known: values that are secret wherever they stand.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = Redactor(known)
        self.count = 0

    def text(self, text: str) -> str:
        """The text without secrets."""
        before = text.count(MASK)
        text = self._known.text(text)
        text = _KEY_BLOCK.sub(rf"\1 {MASK} \2", text)
        for pattern in _PATTERNS:
            text = pattern.sub(_masked, text)
        self.count += max(0, text.count(MASK) - before)
        return text

    def value(self, value: Any, key: str = "") -> Any:
        """A JSON value without secrets; a text under a name that says secret is one, whatever it looks like."""
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return list(self._items(value))
        if isinstance(value, str):
            if key and is_secret_name(key) and value and value != MASK:
                self.count += 1
                return MASK
            return self.text(value)
        return value

    def _items(self, values: Iterable[Any]) -> Iterator[Any]:
        """A list may be a command line, where the word behind `--token` is a value."""
        previous = ""
        for item in values:
            is_value = previous.startswith("--") and "=" not in previous and is_secret_name(previous)
            yield self.value(item, previous if is_value and isinstance(item, str) and not item.startswith("-") else "")
            previous = item if isinstance(item, str) else ""


def secret_values(document: Any, *, environ: Mapping[str, str], names: Iterable[str] = ()) -> frozenset[str]:
    """The secret values that can be known: of variables that are named, or whose names say so, and of such keys of a document."""
    named = {environ[name] for name in names if name in environ}
    telling = {value for name, value in environ.items() if is_secret_name(name)} | set(_texts_under_telling_keys(document))
    return frozenset(named | {value for value in telling if not _ORDINARY.fullmatch(value)})


def _texts_under_telling_keys(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts_under_telling_keys(item, str(name))
    elif isinstance(value, list | tuple) and key != "secrets":  # `environment.secrets` is a list of names
        for item in value:
            yield from _texts_under_telling_keys(item, "")
    elif isinstance(value, str) and key and is_secret_name(key):
        yield value


def _masked(match: re.Match[str]) -> str:
    rest = match[0][len(match[1]) :]
    if rest.strip("\\\"'") in ("", MASK, "<hidden>", "null", "None", "true", "false", "{}", "[]") or rest.startswith("[secret"):
        return match[0]
    quote = re.match(r"\\?[\"']", rest)
    return f"{match[1]}{quote[0]}{MASK}{quote[0]}" if quote else f"{match[1]}{MASK}"
