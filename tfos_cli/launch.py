"""What a follower starts, as a value that can be handed to another process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

__all__ = ("Launch",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a follower starts and how long it waits.

    Attributes:
        environment: the whole environment of spark-submit.
        start_timeout_s: from the start of spark-submit to a SparkContext; None to wait as long as it takes.
        grace_s: what the nodes get at a shutdown, beyond the usual.
        secrets: names of variables whose values must not be written.
        scratch: folders and files that are removed at the end.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str | None
    start_timeout_s: float | None
    grace_s: float = 0.0
    secrets: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()

    def to_json(self) -> str:
        """For the detached follower's stdin, never for a file: the environment has secrets."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Launch:
        """Read what `to_json` gave."""
        data = json.loads(text)
        for name in ("argv", "secrets", "scratch"):
            data[name] = tuple(data[name])
        return cls(**data)
