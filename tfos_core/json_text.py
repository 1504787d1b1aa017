"""Reading JSON that somebody else may have written: one kind of error, whatever is wrong with it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ("parse_json",)


def parse_json(text: str | bytes | bytearray) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nested deeper than Python's own reader can follow (a RecursionError there).
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
