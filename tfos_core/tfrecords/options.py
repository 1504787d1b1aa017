"""The options of `format("tfrecord")`, checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar

from tfos_core.errors import ConfigError
from tfos_core.tfrecords.compression import Compression
from tfos_core.tfrecords.fields import RecordType

__all__ = ("ReadMode", "ReadOptions", "WriteOptions", "paths_of")

E = TypeVar("E", bound=Enum)
_PATHS = ("path", "paths")
_READ = (
    "recordType",
    "compression",
    "mode",
    "columnNameOfCorruptRecord",
    "sampleFiles",
    "sampleRecords",
    "binaryFeatures",
    "sidecar",
    "maxPartitionBytes",
)
_WRITE = ("recordType", "compression", "compressionLevel", "partitionBy", "ifExists")


class ReadMode(StrEnum):
    """What happens to a record that is damaged or does not fit the schema."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How files are read; `record_type` None is what the sidecar says, else Example; `compression` None looks into each file.

    Schemas are inferred from `sample_records` records of at most `sample_files` files; `binary_features` are never strings. Files
    are put together into tasks of about `partition_bytes`.
    """

    record_type: RecordType | None = None
    compression: Compression | None = None
    mode: ReadMode = ReadMode.FAILFAST
    corrupt_column: str = "_corrupt_record"
    sample_files: int = 10
    sample_records: int = 1000
    binary_features: tuple[str, ...] = ()
    sidecar: bool = True
    partition_bytes: int = 128 << 20

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """From the options of a DataFrameReader, whose names have no case.

        Raises:
            ConfigError: an unknown option, or a value that can not be.
        """
        given = _known(options, _READ)
        compression = given.get("compression", "auto")
        return cls(
            record_type=_choice(RecordType, "recordType", given["recordtype"]) if "recordtype" in given else None,
            compression=None if compression.lower() == "auto" else _choice(Compression, "compression", compression),
            mode=_choice(ReadMode, "mode", given.get("mode", "FAILFAST")),
            corrupt_column=given.get("columnnameofcorruptrecord", "_corrupt_record"),
            sample_files=_number("sampleFiles", given.get("samplefiles", "10")),
            sample_records=_number("sampleRecords", given.get("samplerecords", "1000")),
            binary_features=_names(given.get("binaryfeatures", "")),
            sidecar=_flag("sidecar", given.get("sidecar", "true")),
            partition_bytes=_number("maxPartitionBytes", given.get("maxpartitionbytes", str(128 << 20))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How files are written; `level` is zlib's, -1 its default; columns in `partition_by` become folders.

    `refuse_existing` makes an append to something that exists an error: Spark itself has no mode "error" for Python data sources.
    """

    record_type: RecordType = RecordType.EXAMPLE
    compression: Compression = Compression.NONE
    level: int = -1
    partition_by: tuple[str, ...] = ()
    refuse_existing: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """From the options of a DataFrameWriter, whose names have no case.

        Raises:
            ConfigError: an unknown option, or a value that can not be.
        """
        given = _known(options, _WRITE)
        return cls(
            record_type=_choice(RecordType, "recordType", given.get("recordtype", "Example")),
            compression=_choice(Compression, "compression", given.get("compression", "none")),
            level=_number("compressionLevel", given.get("compressionlevel", "-1"), least=-1),
            partition_by=_names(given.get("partitionby", "")),
            refuse_existing=_one_of("ifExists", given.get("ifexists", "append"), "append", "error") == "error",
        )


def paths_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The argument of `load` or `save`; Spark gives several paths as a JSON list.

    Raises:
        ConfigError: there is none.
    """
    given = {name.lower(): value for name, value in options.items()}
    paths = tuple(json.loads(given["paths"])) if "paths" in given else (given["path"],) if "path" in given else ()
    if not paths:
        raise ConfigError("no path was given for the TFRecords", 'Use load("PATH") or save("PATH").')
    return paths


def _known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    given = {name.lower(): str(value) for name, value in options.items() if name.lower() not in _PATHS}
    allowed = {name.lower(): name for name in names}
    for name in given:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            meant = f"Did you mean {allowed[close[0]]!r}?" if close else f"Options are {', '.join(names)}."
            raise ConfigError(f"{name!r} is no option of format tfrecord here", meant)
    return given


def _choice(kind: type[E], option: str, value: str) -> E:
    for member in kind:
        if str(member.value).lower() == value.lower():
            return member
    allowed = ", ".join(str(member.value) for member in kind)
    raise ConfigError(f"option {option} is {value!r}", f"It can be {allowed}.")


def _number(option: str, value: str, *, least: int = 1) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(f"option {option} is {value!r}", f"It must be a whole number, at least {least}.")
    return number


def _flag(option: str, value: str) -> bool:
    return _one_of(option, value, "true", "false") == "true"


def _one_of(option: str, value: str, *allowed: str) -> str:
    if value.lower() not in allowed:
        raise ConfigError(f"option {option} is {value!r}", f"It can be {' or '.join(allowed)}.")
    return value.lower()


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())
