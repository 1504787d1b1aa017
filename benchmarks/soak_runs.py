"""Runs of `tfos train` in a row, and what each leaves on the machine."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from footprint import MARK, count_files, marked_processes, wait_until_gone
from growth import Limit

__all__ = ("RUN_LIMITS", "run_in_a_row")

HERE = Path(__file__).resolve().parent
LONGEST_RUN_S = 180.0
SPEC = """\
name: soak
entrypoint: soak_nodes.py:main_fun
input_mode: spark
num_executors: 2
data:
  source: soak_nodes.py:rows
"""

RUN_LIMITS: Mapping[str, Limit] = {
    "seconds": Limit(per_cycle=None),
    "memory of its largest process": Limit(unit="KiB", per_cycle=64, in_all=4096, is_memory=True),
    "processes left": Limit(),
    "files left in TMPDIR": Limit(),
    "files left in the folder of the spec": Limit(),
    "files in TFOS_HOME outside of run records": Limit(),
    "files in the record of the run": Limit(),
    "bytes in the record of the run": Limit(unit="KiB", per_cycle=0.05, in_all=8),
    "files in /tmp": Limit(),
}


def run_in_a_row(count: int, *, minutes: float, private_tmp: bool) -> tuple[list[tuple[int, dict[str, float]]], list[str]]:
    """A sample after every run, numbered from 1; and the processes that were left. Ends early after so many minutes."""
    until = time.monotonic() + 60 * minutes
    samples: list[tuple[int, dict[str, float]]] = []
    left: list[str] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        places = _places(Path(folder))
        for number in range(1, count + 1):
            samples.append((number, _run(places, left, private_tmp=private_tmp)))
            print(f"  run {number}: {samples[-1][1]['seconds']:.1f} s", flush=True)
            if time.monotonic() >= until:
                break
    return samples, left


def _places(folder: Path) -> dict[str, Path]:
    places = {name: folder / name for name in ("tmp", "home", "job")}
    for place in places.values():
        place.mkdir()
    (places["job"] / "job.yaml").write_text(SPEC)
    (places["job"] / "soak_nodes.py").write_bytes((HERE / "soak_nodes.py").read_bytes())
    return places


def _run(places: Mapping[str, Path], left: list[str], *, private_tmp: bool) -> dict[str, float]:
    mark = uuid.uuid4().hex  # of this run alone: the JVM of a driver in this process stays until it ends
    environment = os.environ | {MARK: mark, "TMPDIR": str(places["tmp"]), "TFOS_HOME": str(places["home"])}
    environment["PYTHONPATH"] = str(HERE.parent)
    for name in ("SPARK_HOME", "SPARK_LOCAL_DIRS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "tfos_cli", "train", "job.yaml", "--json"]
    records = places["home"] / "runs"
    before = set(records.iterdir()) if records.exists() else set()
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=places["job"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_RUN_S
    )
    seconds = time.monotonic() - started
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    left += wait_until_gone(lambda: marked_processes(mark))
    (record,) = set(records.iterdir()) - before
    found = {
        "seconds": seconds,
        # Of all children so far: what grows from run to run shows, and the first ones do not.
        "memory of its largest process": float(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss),
        "processes left": float(len(marked_processes(mark))),
        "files left in TMPDIR": count_files([places["tmp"]]) - 1.0,
        "files left in the folder of the spec": float(count_files([places["job"]])),
        "files in TFOS_HOME outside of run records": float(count_files([places["home"]]) - count_files(records.iterdir())),
        "files in the record of the run": float(count_files([record])),
        "bytes in the record of the run": sum(path.stat().st_size for path in record.rglob("*") if path.is_file()) / 1024,
    }
    if private_tmp:
        found["files in /tmp"] = count_files([Path("/tmp")]) - count_files([places["tmp"].parent])
    return found
