"""How much of a feed a node keeps, for `data.cache: node`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfos_core.errors import ConfigError

__all__ = ("DEFAULT_DISK_BYTES", "DEFAULT_MEMORY_BYTES", "NodeCache")

DEFAULT_MEMORY_BYTES = 256 << 20
DEFAULT_DISK_BYTES = 10 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCache:
    """Epochs after the first of a `train` call come from a cache on every node, not from Spark.

    Attributes:
        memory_bytes: of rows that a node keeps in memory; 256 MiB by default.
        disk_bytes: of rows that do not fit there and that it keeps in a file of the executor's local folder; 10 GiB by default.
        shuffle: whether blocks of rows (of about 1 MiB) come in another order in every epoch after the first.
        seed: of that order, which depends on the seed, the epoch and the node alone.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    disk_bytes: int = DEFAULT_DISK_BYTES
    shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.memory_bytes < 0 or self.disk_bytes < 0:
            raise ConfigError("the limits of a cache can not be negative", "0 keeps nothing in memory, or nothing on disk.")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NodeCache:
        """The reverse of `to_dict`."""
        return cls(**data)
