"""What lies in folders of TFRecords: files, the columns that folder names `column=value` stand for, and the schema sidecar."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from tfos_core.errors import ConfigError
from tfos_core.json_text import parse_json
from tfos_core.storage import Storage, storage_of
from tfos_core.tfrecords.fields import RecordType

__all__ = ("SIDECAR_NAME", "InputFile", "Sidecar", "folder_name", "list_files", "pack", "read_sidecar", "within_output")

SIDECAR_NAME = "_tfos_schema.json"
#: The value of a partition column that stands for null, as in Hive and Spark.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_VERSION = 1
#: A file costs about as much to open as this many bytes to read.
_OPEN_BYTES = 4 << 20
_WANTED_TASKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file to read, and the values of partition columns for its rows (None: null)."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """What a writer tells its readers: Spark's schema as JSON, partition columns included, and what records are."""

    schema: Mapping[str, Any]
    record_type: RecordType
    partition_by: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The text of the file."""
        document = {
            "version": _VERSION,
            "recordType": self.record_type.value,
            "partitionBy": list(self.partition_by),
            "schema": self.schema,
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str, path: str) -> Sidecar:
        """From the text of the file.

        Raises:
            ConfigError: it is not one that we can read.
        """
        try:
            document = parse_json(text)
            if document["version"] != _VERSION:
                raise ConfigError(
                    f"{path} has version {document['version']!r}",
                    "It was written by a newer tfos: read with option sidecar=false, or update.",
                )
            return cls(
                schema=document["schema"],
                record_type=RecordType(document["recordType"]),
                partition_by=tuple(document["partitionBy"]),
            )
        except (KeyError, TypeError, json.JSONDecodeError) as exc:
            raise ConfigError(f"{path} is damaged: {exc}", "Read with option sidecar=false, or with a schema.") from exc


def list_files(paths: Sequence[str]) -> tuple[InputFile, ...]:
    """All files of these paths (folders, files, wildcards), in the order of their names.

    Raises:
        ConfigError: a path does not exist.
    """
    found: list[InputFile] = []
    for path in paths:
        storage = storage_of(path)
        expanded = storage.expand(storage.absolute(path))
        if not expanded:
            raise ConfigError(
                f"there is no data at {path}: it does not exist", "Check the path, and that this machine can reach it."
            )
        for each in expanded:
            found.extend(
                InputFile(path=entry.path, size=entry.size, partition=_partition(entry.below))
                for entry in storage.files_below(each)
            )
    return tuple(found)


def read_sidecar(paths: Sequence[str]) -> Sidecar | None:
    """The sidecar of these paths, when there is one: in the folder itself, or, for a part of it, in a folder above.

    Raises:
        ConfigError: it can not be read, or there are different ones.
    """
    found: dict[str, str] = {}
    for path in paths:
        storage = storage_of(path)
        for each in storage.expand(storage.absolute(path)):
            location = _sidecar_path(storage, each)
            if location is None:
                return None
            with storage.open_input(location) as file:
                found.setdefault(file.read().decode(), location)
    if len(found) > 1:
        raise ConfigError(
            f"the schemas in {' and '.join(found.values())} differ", "Read the folders one by one and union them, or give a schema."
        )
    return next((Sidecar.of_json(text, path) for text, path in found.items()), None)


def pack(files: Sequence[InputFile], partition_bytes: int) -> tuple[tuple[InputFile, ...], ...]:
    """Files in groups, one for each task; small ones share one."""
    total = sum(file.size + _OPEN_BYTES for file in files)
    most = min(partition_bytes, max(_OPEN_BYTES, total // _WANTED_TASKS))
    groups: list[list[InputFile]] = []
    room = 0
    for file in sorted(files, key=_size, reverse=True):
        cost = file.size + _OPEN_BYTES
        if cost > room or not groups:
            groups.append([])
            room = most
        groups[-1].append(file)
        room -= cost
    return tuple(tuple(group) for group in groups)


def folder_name(column: str, value: str | None) -> str:
    """The name of a partition's folder."""
    shown = NULL_FOLDER if value is None or value == "" else quote(value, safe=" !$&()+,;@-_.~")
    return f"{quote(column, safe=' !$&()+,;@-_.~')}={shown}"


def within_output(file: InputFile, partition_by: Sequence[str]) -> InputFile:
    """The file with all its partition columns when only a part of an output is read, such as one partition's folder."""
    folders = posixpath.dirname(file.path).split("/")
    pairs = [pair for pair in _pairs(folders) if pair[0] in partition_by]
    return InputFile(path=file.path, size=file.size, partition=tuple(pairs))


def _size(file: InputFile) -> int:
    return file.size


def _partition(below: str) -> tuple[tuple[str, str | None], ...]:
    return tuple(_pairs(posixpath.dirname(below).split("/")))


def _pairs(folders: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        column, equals, value = folder.partition("=")
        if equals:
            yield unquote(column), None if value == NULL_FOLDER else unquote(value)


def _sidecar_path(storage: Storage, path: str) -> str | None:
    folder = path
    while True:
        candidate = posixpath.join(folder, SIDECAR_NAME)
        if storage.exists(candidate):
            return candidate
        # A file, or a partition's folder, belongs to the folder above.
        if folder != path and "=" not in posixpath.basename(folder):
            return None
        above = posixpath.dirname(folder)
        if above == folder:
            return None
        folder = above
