"""Measurements as numbers for people and as JSON; where they were taken."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ("RESULTS", "Measurement", "describe_machine", "measure", "print_table", "write_results")

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All rounds of one side, in `unit`; `spread` is (max - min) / median."""

    case: str
    side: str
    unit: str
    rounds: tuple[float, ...]
    median: float
    least: float
    most: float
    spread: float


def measure(case: str, side: str, rounds: Sequence[float], *, unit: str = "rows/s") -> Measurement:
    """The summary of these rounds."""
    median = statistics.median(rounds)
    return Measurement(
        case=case,
        side=side,
        unit=unit,
        rounds=tuple(round(value, 4) for value in rounds),
        median=median,
        least=min(rounds),
        most=max(rounds),
        spread=(max(rounds) - min(rounds)) / median if median else 0.0,
    )


def print_table(title: str, rows: Sequence[tuple[Measurement, Measurement | None]]) -> None:
    """A line for each measurement, with its ratio to the one it is compared with."""
    print(f"\n{title}")
    print(f"  {'':34}{'median':>12}{'min':>12}{'max':>12}{'spread':>8}  ratio")
    for measured, base in rows:
        digits = 3 if measured.median < 100 else 0
        numbers = "".join(f"{value:>12,.{digits}f}" for value in (measured.median, measured.least, measured.most))
        ratio = "" if base is None else f"{measured.median / base.median:.3g} of {base.side}"
        print(f"  {measured.side + ' (' + measured.unit + ')':34}{numbers}{measured.spread:>8.0%}  {ratio}")


def write_results(name: str, measurements: Sequence[Measurement], *, folder: Path = RESULTS, **settings: Any) -> Path:
    """One JSON document in `results/`."""
    folder.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = folder / f"{name}-{stamp}.json"
    document = {
        "benchmark": name,
        "at": stamp,
        "machine": describe_machine(),
        "settings": settings,
        "measurements": [asdict(measured) for measured in measurements],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def describe_machine() -> dict[str, Any]:
    """What a reader has to know to compare numbers; `load_1min` above 1 means that others were at work."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("pyspark", "tensorflow", "numpy", "pyarrow")},
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
