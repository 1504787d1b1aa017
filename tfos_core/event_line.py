"""The JSON line of an event, for whoever can not wait for `tfos_core.events`, which declares the fields of them all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

__all__ = ("VERSION", "event_line")

VERSION = 1


def event_line(kind: str, fields: Mapping[str, Any], *, ts: float | None = None) -> str:
    """The line without its end; `ts` defaults to now."""
    head = {"v": VERSION, "ts": round(time.time() if ts is None else ts, 3), "event": kind}
    return json.dumps(head | dict(fields), separators=(",", ":"))
