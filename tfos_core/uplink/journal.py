"""Numbered lines in a record: parts that are written once, each named after its first line.

A part is a text of lines `NUMBER<tab>LINE`. Numbers only grow; one that is missing between two others was left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tfos_core.json_text import parse_json
from tfos_core.uplink.folder import RecordFolder

__all__ = ("CANCEL_FILE", "JournalReader", "NumberedLine", "cancel_reason", "decode_part", "encode_part", "part_name")

#: Its presence asks the driver to end the job: `{"reason": ...}`.
CANCEL_FILE = "cancel.json"

NumberedLine = tuple[int, str]

_SUFFIX = ".jsonl"
_DIGITS = 12


def part_name(first: int) -> str:
    """The name of the part that begins with this number.

    >>> part_name(7)
    '000000000007.jsonl'
    """
    return f"{first:0{_DIGITS}d}{_SUFFIX}"


def encode_part(lines: Iterable[NumberedLine]) -> bytes:
    """The content of a part."""
    return "".join(f"{number}\t{line}\n" for number, line in lines).encode("utf-8", "backslashreplace")


def decode_part(data: bytes) -> list[NumberedLine]:
    """The lines of a part; what is damaged is left out."""
    found = []
    for line in data.decode("utf-8", "replace").split("\n"):
        number, tab, text = line.partition("\t")
        if tab and number.isascii() and number.isdigit():
            found.append((int(number), text))
    return found


class JournalReader:
    """Reads a record as it grows.

    Args:
        position: the first number that is wanted.
    """

    def __init__(self, folder: RecordFolder, *, position: int = 1) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._position = position

    def read(self) -> list[NumberedLine]:
        """The lines that have come since the last call, in order.

        Raises:
            OSError: the record can not be read.
        """
        parts = [name for name in self._folder.names() if _first(name) is not None]
        found: list[NumberedLine] = []
        for place, name in enumerate(parts):
            # A part ends before its successor begins; how far the last one goes is not known.
            following = _first(parts[place + 1]) if place + 1 < len(parts) else None
            if name in self._seen or (following is not None and following <= self._position):
                continue
            data = self._folder.get(name)
            if data is None:
                break  # it is just being put there
            found += [(number, line) for number, line in decode_part(data) if number >= self._position]
            self._seen.add(name)
        return found


def cancel_reason(data: bytes) -> str:
    """What a cancel request says."""
    with contextlib.suppress(ValueError):
        document = parse_json(data)
        if isinstance(document, dict):
            return str(document.get("reason", ""))
    return ""


def _first(name: str) -> int | None:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isascii() and digits.isdigit() else None
