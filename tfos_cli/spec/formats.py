"""The format of data from the ending of its path."""

from __future__ import annotations

from tfos_cli.spec.model import DataFormat

__all__ = ("ENDINGS", "guess_format")

ENDINGS: dict[str, DataFormat] = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
    "pq": "parquet",
    "orc": "orc",
    "txt": "text",
    "text": "text",
    "tfrecord": "tfrecord",
    "tfrecords": "tfrecord",
}
_COMPRESSIONS = ("gz", "bz2", "zst", "snappy", "lz4", "deflate", "xz")


def guess_format(path: str | None) -> DataFormat | None:
    """The format that the ending of a file, folder or glob says, or None."""
    if path is None:
        return None
    parts = path.rstrip("/").rpartition("/")[2].lower().split(".")
    if len(parts) > 1 and parts[-1] in _COMPRESSIONS:
        parts.pop()
    return ENDINGS.get(parts[-1]) if len(parts) > 1 else None
