"""What Spark writes for one run on the submitting machine, which is removed at the end; models are saved from it first.

`python -m tfos_core.shim.scratch JVM_PID FOLDER...` waits for the JVM and removes the folders: for the driver of a run whose
follower was killed, because the JVM still works in them while the driver ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfos_core import processes

__all__ = ("SCRATCH_NAMES", "keep_export", "remove_later")

#: Names in the folder of a run. Executors of a cluster inside this machine work below the first one.
SCRATCH_NAMES = ("spark", "ship", "spark-secrets.conf", "channel.json")
EXPORTS_FOLDER = "exports"

_JVM_END_S = 60.0


def keep_export(run_folder: Path, path: str) -> str:
    """Move an export out of the scratch that will be removed, and return where it is now; other paths stay as they are."""
    source = Path(path.removeprefix("file://"))
    if not source.is_relative_to(run_folder / SCRATCH_NAMES[0]) or not source.exists():
        return path
    target = run_folder / EXPORTS_FOLDER / source.name
    count = 1
    while target.exists():
        count += 1
        target = target.with_name(f"{source.name}-{count}")
    target.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.move(source, target)
    return str(target)


def remove_later(run_folder: Path, jvm: int) -> None:
    """Start a process that removes the scratch of a run when its JVM has ended, and ends then itself."""
    folders = [str(run_folder / name) for name in SCRATCH_NAMES]
    subprocess.Popen(
        [sys.executable, "-m", "tfos_core.shim.scratch", str(jvm), *folders],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def main(argv: Sequence[str]) -> None:
    """Wait for the JVM, for at most a minute, and remove."""
    jvm, started = int(argv[0]), processes.start_time(int(argv[0]))
    until = time.monotonic() + _JVM_END_S
    while processes.is_same_process(jvm, started) and time.monotonic() < until:
        time.sleep(0.1)  # not a child, and this process has nothing else to do
    for name in argv[1:]:
        path = Path(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
