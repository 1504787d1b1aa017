"""Stands in for `spark-submit --deploy-mode cluster`: the real driver shim in another folder, over an engine without Spark.

`cluster_program.py MODE RUN_FOLDER HOW`; the mode is that of `driver_program`, and with the word `leave` for HOW it does not wait
for the end of the application.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tfos_cli.driver import run_remote_plan
from tfos_core.jobplan import JobPlan
from tfos_core.uplink.private import PRIVATE_FILE

APPLICATION = "application_7_0001"


def container_of(run_folder: Path) -> Path:
    """The working folder of the driver of a run."""
    return run_folder.parent.parent / "container"


def main() -> int:
    mode, folder, how = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if mode == "refuse":
        print("ERROR Client: queue ml does not exist", file=sys.stderr)
        return 1
    # The id comes before the files are copied, as Spark has it.
    print(f"26/11/29 13:00:00 INFO Client: Application ID is assigned: {APPLICATION}", file=sys.stderr, flush=True)
    if mode == "not-handed-over":
        print("Exception in thread main java.io.FileNotFoundException: no such archive", file=sys.stderr)
        return 1
    container = container_of(folder)
    container.mkdir()
    time.sleep(0.3)  # what is removed too early is missing then
    for source in (folder / "plan.json", folder / "ship" / PRIVATE_FILE):
        shutil.copy(source, container)
    print(f"26/11/29 13:00:00 INFO YarnClientImpl: Submitted application {APPLICATION}", file=sys.stderr, flush=True)
    if mode == "queued":
        return 0
    with (container / "output").open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, __file__, mode, str(container), "drive"],
            cwd=container,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    (container / "pid").write_text(str(driver.pid))
    return 0 if how == "leave" or driver.wait() == 0 else 1


def drive() -> int:
    """The driver in its container."""
    from driver_program import engine_of  # beside this file

    plan = JobPlan.from_json(Path("plan.json").read_text())
    assert plan.remote is not None
    return run_remote_plan(plan, plan.remote, engine=engine_of(sys.argv[1]), folder=Path.cwd(), jvm=_no_jvm, environ={})


def _no_jvm() -> tuple[Any, Any]:
    raise OSError("there is no JVM here")


if __name__ == "__main__":
    # As in a container, nothing of the submitting machine's environment is there.
    os.environ.pop("FAKE_SECRET", None) if sys.argv[3] == "drive" else None
    sys.exit(drive() if sys.argv[3] == "drive" else main())
