"""Stands in for what spark-submit runs: the real driver shim over an engine without Spark.

`driver_program.py MODE RUN_FOLDER`; the mode says how the job goes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfos_cli.driver import run_plan
from tfos_core import events
from tfos_core.cluster_report import ClusterReport
from tfos_core.errors import NodeFailedError
from tfos_core.jobplan import JobPlan
from tfos_core.options import ClusterOptions
from tfos_core.shim.job import Engine


class FakeCluster:
    def __init__(self, mode: str, options: ClusterOptions) -> None:
        self.mode = mode
        self.options = options

    def start(self) -> None:
        emit = self.options.on_event
        emit(events.ReservationServerStarted(host="127.0.0.1", port=1, expected=("worker:0",), timeout_s=600))
        emit(events.NodeRegistered(node="worker:0", executor_id=0, host="10.0.0.1", port=2, pid=3, registered=1, expected=1))
        emit(events.ClusterReady(addresses={"worker:0": "10.0.0.1:2"}, seconds=0.5))
        self.options.on_output("worker:0", ["hello from the node", f"the secret is {os.environ.get('FAKE_SECRET', '')}"])

    def shutdown(self, *, grace_secs: float, timeout: float) -> None:
        self.options.on_event(events.ShutdownStarted(reason="the job is done"))
        if self.mode == "fail":
            error = NodeFailedError("worker:0 raised ValueError: no", None, "worker:0", "10.0.0.1", 0, 1, None, "Traceback: no")
            self.options.on_event(
                events.NodeFailed(node="worker:0", host="10.0.0.1", executor_id=0, error=str(error), traceback="Traceback: no")
            )
            raise error
        if self.mode == "kill-self":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode in ("wait", "ignore"):
            self._wait_for_stop()
        self.options.on_event(events.ShutdownFinished(seconds=0.1))

    def _wait_for_stop(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and (self.options.cancellation.reason is None or self.mode == "ignore"):
            time.sleep(0.01)
        self.options.cancellation.check()

    def report(self) -> Any:
        return ClusterReport(timings={"ready_s": 0.5})


class FakeSpark:
    sparkContext = SimpleNamespace(applicationId="app-1", version="4.3.0", uiWebUrl=None)  # noqa: N815 - pyspark's name

    def stop(self) -> None:
        return


def main() -> int:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "refuse":
        print("26/11/29 13:00:00 INFO nothing to see", file=sys.stderr)
        print("ERROR Master: this application is not welcome", file=sys.stderr)
        return 1
    if mode == "hang":
        time.sleep(60)
    plan = JobPlan.from_json((folder / "plan.json").read_text())
    return run_plan(plan, engine=engine_of(mode), environ=os.environ)


def engine_of(mode: str) -> Engine:
    """An engine without Spark; the mode says how its cluster does."""

    def run_cluster(*args: Any, options: ClusterOptions, **kwargs: Any) -> FakeCluster:
        cluster = FakeCluster(mode, options)
        cluster.start()
        return cluster

    def start_spark(plan: JobPlan) -> FakeSpark:
        print("what the user prints", flush=True)
        print("26/11/29 13:00:00 INFO what Spark says", file=sys.stderr, flush=True)
        if mode == "no-master":
            raise RuntimeError("All masters are unresponsive! Giving up.")
        return FakeSpark()

    return Engine(start_spark=start_spark, run_cluster=run_cluster)


if __name__ == "__main__":
    sys.exit(main())
