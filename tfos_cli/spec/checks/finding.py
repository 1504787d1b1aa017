"""What a rule says, and what it looks at."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tfos_cli.spec.loader import ResolvedSpec
from tfos_cli.spec.masters import MasterKind, is_loopback, master_kind, standalone_hosts
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.places import below
from tfos_cli.spec.problems import shown
from tfos_cli.spec.values import memory_bytes, property_bytes
from tfos_core.shim.redaction import hide_url_passwords

__all__ = ("Case", "Finding", "Findings", "Heap", "Level")


class Level(StrEnum):
    """An error can not work; a warning may, and fails with `--strict` only."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rule found: `value` is what `field` holds now, `source` where it was set, `fix` what to do."""

    id: str
    level: Level
    field: str
    value: str
    source: str
    message: str
    fix: str


Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """The key that decides, its text, and bytes; None when the text is no size."""

    field: str
    text: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A resolved spec and the machine on which it is checked."""

    resolved: ResolvedSpec
    environ: Mapping[str, str]
    platform: str = sys.platform
    search_path: tuple[str, ...] = ()

    @property
    def spec(self) -> JobSpec:
        """The spec's values."""
        return self.resolved.spec

    @property
    def kind(self) -> MasterKind:
        """The kind of cluster manager."""
        return master_kind(self.spec.spark.master)

    @property
    def conf(self) -> Mapping[str, str]:
        """Spark properties of the spec."""
        return self.spec.spark.conf

    @property
    def executor_cores(self) -> int | None:
        """Cores of an executor, None when the property that decides is no number of cores."""
        text = self.conf.get("spark.executor.cores", str(self.spec.spark.executor_cores))
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:9]) == int(text) else None

    def heap(self, process: Literal["executor", "driver"]) -> Heap:
        """The JVM heap of a process; a property wins over the spec's key, as it does in Spark."""
        key = f"spark.{process}.memory"
        if key in self.conf:
            return Heap(field=f"spark.conf.{key}", text=self.conf[key], size=property_bytes(self.conf[key]))
        text = str(getattr(self.spec.spark, f"{process}_memory"))
        return Heap(field=f"spark.{process}_memory", text=text, size=memory_bytes(text))

    @property
    def is_shared(self) -> bool:
        """Whether the cluster has other machines or other people's jobs."""
        if self.kind is MasterKind.STANDALONE:
            return not all(is_loopback(host) for host in standalone_hosts(self.spec.spark.master or ""))
        return self.kind in (MasterKind.YARN, MasterKind.KUBERNETES)

    def file(self, text: str) -> Path:
        """A path of the spec, which is relative to the spec's folder."""
        return below(self.resolved.folder, text)

    def value_of(self, field: str) -> object:
        """The value of a dotted key of the spec's own."""
        value: object = self.spec
        for part in field.split("."):
            value = getattr(value, part, None)
        return value

    def error(self, rule: str, field: str, message: str, fix: str) -> Finding:
        """A finding that can not work."""
        return self._finding(rule, Level.ERROR, field, message, fix)

    def warning(self, rule: str, field: str, message: str, fix: str) -> Finding:
        """A finding that may work."""
        return self._finding(rule, Level.WARNING, field, message, fix)

    def conf_error(self, rule: str, key: str, message: str, fix: str) -> Finding:
        """A finding about a Spark property of the spec."""
        return self.error(rule, f"spark.conf.{key}", message, fix)

    def _finding(self, rule: str, level: Level, field: str, message: str, fix: str) -> Finding:
        source, message = self.resolved.place_of(field), hide_url_passwords(message)
        return Finding(id=rule, level=level, field=field, value=self._value(field), source=source, message=message, fix=fix)

    def _value(self, field: str) -> str:
        if field.startswith("spark.conf."):
            key = field.removeprefix("spark.conf.")
            return shown(self.conf[key], ()) if key in self.conf else "not set"
        if field.startswith("environment.vars."):
            return "not shown"
        value = self.value_of(field)
        return shown(value.model_dump() if hasattr(value, "model_dump") else value, ())
