"""The file that brings to a driver on the cluster what nobody else may know: the secret of the connection, and the user's secrets.

It is readable by its owner only, on the submitting machine and in the folder into which Spark copies it for the application.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfos_core.json_text import parse_json

__all__ = ("PRIVATE_FILE", "Private")

#: In the working folder of the driver.
PRIVATE_FILE = "tfos-private.json"

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Where the submitting machine listens (`port` 0: nowhere), what proves both sides, and the values of the user's secrets."""

    host: str = ""
    port: int = 0
    secret: bytes = field(default=b"", repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_json(self) -> str:
        """The content of the file."""
        document = {"v": VERSION, "host": self.host, "port": self.port, "secret": self.secret.hex(), "values": dict(self.values)}
        return json.dumps(document)

    @classmethod
    def read(cls, path: Path) -> Private:
        """Read what `to_json` wrote.

        Raises:
            OSError: there is no such file.
            ValueError: it is not of this version.
        """
        data = parse_json(path.read_text(encoding="utf-8"))
        try:
            if data["v"] != VERSION:
                raise ValueError(f"{path} is not of version {VERSION}: use the same tfos on both sides")
            secret = bytes.fromhex(data["secret"])
            return cls(host=str(data["host"]), port=int(data["port"]), secret=secret, values=dict(data["values"]))
        except (KeyError, TypeError) as exc:
            raise ValueError(f"{path} is damaged: {exc!r}") from exc
