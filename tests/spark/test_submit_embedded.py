"""The command for this machine, executed: real executors get the engine, the program and the memory that was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.submissions import resolve
from testbed.processes import kill_group, start_child

from tfos_cli.submit.preparation import prepare

DEADLINE_S = 120.0
SPEC = """\
name: probe
entrypoint: apps/digits.py:main_fun
num_executors: 2
environment: {vars: {GREETING: "hello world", API_TOKEN: abcdef}}
spark: {executor_memory: 600m, files: [apps/lookup.txt]}
"""
SHIM = """\
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
import digits
seen = sc.parallelize(range(2), 2).barrier().mapPartitions(digits.look).collect()
spark.sql("select 1").collect()
spark.stop()
print("PROBE " + json.dumps(seen), flush=True)
"""
PROGRAM = """\
def look(rows):
    import os, sys, tfos_core, digits, neighbour.part
    from pyspark import SparkFiles

    yield {
        "pid": os.getppid(),
        "cwd": os.getcwd(),
        "engine": tfos_core.__file__,
        "program": digits.__file__,
        "python": sys.executable,
        "greeting": os.environ["GREETING"],
        "token": os.environ["API_TOKEN"],
        "local": os.environ["SPARK_LOCAL_DIRS"],
        "file": open(SparkFiles.get("lookup.txt")).read(),
    }
"""


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_executors_of_this_machine_run_the_program_and_leave_nothing(tmp_path: Path) -> None:
    job = tmp_path / "my job 100%20"
    (job / "apps" / "neighbour").mkdir(parents=True)
    (job / "apps" / "digits.py").write_text(PROGRAM)
    (job / "apps" / "neighbour" / "part.py").write_text("")
    (job / "apps" / "lookup.txt").write_text("found")
    run_folder = tmp_path / "my runs" / "r1"
    run_folder.mkdir(parents=True)
    resolved = resolve(SPEC, job)
    with prepare(
        resolved, run_id="r1", run_folder=run_folder, plan_path=run_folder / "plan.json", channel=None, environ=os.environ
    ) as prepared:
        (run_folder / "ship" / "tfos_driver.py").write_text(SHIM)
        child = start_child(
            prepared.command.argv,
            environment=os.environ | dict(prepared.command.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            folder=prepared.command.cwd,
            text=True,
        )
        try:
            stdout, stderr = child.communicate(timeout=DEADLINE_S)
        finally:
            kill_group(child)
        assert child.returncode == 0, stderr
        seen = json.loads(str(stdout).split("PROBE ")[1])
        scratch = prepared.scratch
        assert [(one["greeting"], one["token"], one["file"]) for one in seen] == [("hello world", "abcdef", "found")] * 2
        assert {one["python"] for one in seen} == {sys.executable}
        assert len({one["pid"] for one in seen}) == 2
        for one in seen:
            assert Path(one["cwd"]).is_relative_to(scratch.home / "work")
            assert Path(one["local"]).is_relative_to(scratch.local)
            assert one["engine"].endswith("tfos_core.zip/tfos_core/__init__.py")
            assert one["program"].endswith("application.zip/digits.py")
    assert {entry.name for entry in run_folder.iterdir()} == {"ship", "plan.json"}
    assert {entry.name for entry in job.iterdir()} == {"apps", "job.yaml"}
