"""Spark's own `spark-submit --verbose` reads every golden command: a wrong option is ignored there without a word.

In client mode a probe takes the place of the shim and ends at once; in cluster mode the process is killed when it has said what it
understood, before it has found a cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.submissions import SPECS, resolve
from testbed.processes import kill_group, start_child

from tfos_cli.submit.command import build_command, write_secret_properties
from tfos_cli.submit.preparation import prepare
from tfos_cli.submit.shipping import shipment_of, write_shipment
from tfos_cli.submit.spark_home import locate_spark

DEADLINE_S = 60.0
LAST_LINE = "Classpath elements:"
PROBE = """\
import json, sys
import digits, neighbour.part, tfos_core
print("PROBE " + json.dumps([sys.argv[1:], tfos_core.__file__, digits.__file__, sys.executable, sys.path[0]]), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Understood:
    """What spark-submit said about a command."""

    arguments: Mapping[str, str]
    main_class: str
    properties: Mapping[str, str]
    probe: list[object] | None


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job in a folder whose name Spark is apt to misread."""
    folder = tmp_path / "my job 100%20"
    for name in ("apps/neighbour", "lib", "envs", "data", "yarn"):
        (folder / name).mkdir(parents=True)
    (folder / "apps" / "digits.py").write_text("def main_fun(args, ctx): pass\n")
    (folder / "apps" / "neighbour" / "part.py").write_text("")
    (folder / "apps" / "lookup.txt").write_text("")
    (folder / "yarn" / "yarn-site.xml").write_text("<configuration/>\n")
    for name in ("lib/a.jar", "lib/extra.zip"):
        (folder / name).write_bytes(b"PK\x05\x06" + bytes(18))
    return folder


def submit(text: str, folder: Path, *, until_understood: bool) -> Understood:
    """Give the command of a spec to spark-submit."""
    run_folder = folder / "run"
    run_folder.mkdir()
    hadoop = {"YARN_CONF_DIR": str(folder / "yarn"), "HADOOP_CONF_DIR": str(folder / "yarn")}
    resolved = resolve(text.replace(', "hdfs:///lib/b.jar"', ""), folder)
    spark = locate_spark(os.environ)
    if until_understood:
        plan_path = run_folder / "plan.json"
        plan_path.write_text("{}")
        write_shipment(resolved, run_folder)
        command = build_command(resolved, plan_path=plan_path, run_folder=run_folder, python=sys.executable, spark_home=spark.path)
        write_secret_properties(command, spark_home=spark.path, environ=os.environ)
    else:
        prepared = prepare(
            resolved,
            run_id="r1",
            run_folder=run_folder,
            plan_path=run_folder / "plan.json",
            channel=None,
            environ=os.environ | hadoop,
        )
        command = prepared.command
    shipment_of(resolved, run_folder).shim.write_text(PROBE)
    environment = dict(command.environment) | hadoop
    argv = [command.argv[0], "--verbose", *command.argv[1:]]
    return understood(run(argv, os.environ | environment, command.cwd, until_understood=until_understood))


def run(argv: Sequence[str], environment: Mapping[str, str], cwd: Path, *, until_understood: bool) -> list[str]:
    """The output, up to its end or up to the last line of what was understood."""
    child = start_child(argv, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, folder=cwd, text=True)
    deadline = threading.Timer(DEADLINE_S, kill_group, args=(child,))
    deadline.start()
    lines: list[str] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(str(line).rstrip("\n"))
            if until_understood and lines[-1] == LAST_LINE:
                break
    finally:
        deadline.cancel()
        kill_group(child)
    assert LAST_LINE in lines, "\n".join(lines)
    return lines


def understood(lines: Sequence[str]) -> Understood:
    """Read the sections that `--verbose` prints."""
    start = lines.index("Parsed arguments:") + 1
    arguments = dict(line.split(None, 1) for line in lines[start : lines.index("", start)])
    config = lines[lines.index("Spark config:") + 1 : lines.index(LAST_LINE)]
    probe = next((json.loads(line.removeprefix("PROBE ")) for line in lines if line.startswith("PROBE ")), None)
    return Understood(
        arguments=arguments,
        main_class=lines[lines.index("Main class:") + 1],
        properties=dict(line[1:-1].split(",", 1) for line in config if line.startswith("(")),
        probe=probe,
    )


def assert_the_program_arrived(result: Understood, job: Path) -> None:
    ship = job / "run" / "ship"
    assert result.probe == [
        [str(job / "run" / "plan.json")],
        str(ship / "tfos_core.zip" / "tfos_core" / "__init__.py"),
        str(ship / "application.zip" / "digits.py"),
        sys.executable,
        str(ship),
    ]


def test_spark_understands_the_command_for_this_machine(job: Path) -> None:
    text = SPECS["embedded"].replace("executor_cores: 2", "executor_cores: 2, executor_memory: 600m, files: [apps/lookup.txt]")
    result = submit(text, job, until_understood=False)
    assert result.arguments["master"] == "local-cluster[3,2,600]"
    assert result.properties["spark.executor.memory"] == "600m"
    assert result.properties["spark.executor.cores"] == "2"
    assert result.properties["spark.ui.enabled"] == "false"
    assert result.properties["spark.executorEnv.GREETING"] == "hello world"
    assert "spark.executorEnv.API_TOKEN" in result.properties
    assert "apps/lookup.txt" in result.properties["spark.files"]
    assert_the_program_arrived(result, job)


def test_spark_understands_the_command_for_standalone(job: Path) -> None:
    result = submit(SPECS["standalone"], job, until_understood=False)
    assert result.main_class == "org.apache.spark.deploy.PythonRunner"
    assert result.arguments["master"] == "spark://localhost:7077"
    assert result.properties["spark.cores.max"] == "6"
    assert result.properties["spark.executor.cores"] == "2"
    assert result.properties["spark.executor.memory"] == "2g"
    assert result.properties["spark.locality.wait"] == "1s"
    assert "spark.authenticate.secret" in result.properties
    assert_the_program_arrived(result, job)


def test_spark_understands_the_command_for_yarn_in_client_mode(job: Path) -> None:
    # Without `packages`, which spark-submit would look for in the network at once.
    result = submit(SPECS["yarn-client"].replace("packages: ['org.example:lib:1.0'], ", ""), job, until_understood=False)
    assert result.arguments["numExecutors"] == "3"
    assert result.properties["spark.executor.instances"] == "3"
    assert result.properties["spark.executor.memoryOverhead"] == "3072m"
    assert result.properties["spark.yarn.queue"] == "ml"
    assert_the_program_arrived(result, job)


def test_spark_understands_the_command_for_yarn_in_cluster_mode(job: Path) -> None:
    result = submit(SPECS["yarn-cluster"], job, until_understood=True)
    assert result.main_class == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    assert result.arguments["deployMode"] == "cluster"
    assert result.arguments["childArgs"] == "[plan.json]"
    assert result.properties["spark.executor.instances"] == "3"
    assert result.properties["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == sys.executable
    assert result.properties["spark.yarn.dist.archives"].endswith("env.tar.gz#env")
    assert result.properties["spark.yarn.dist.files"].count("plan.json") == 1
    assert result.properties["spark.yarn.dist.pyFiles"].count(".zip") == 2


def test_spark_understands_the_command_for_kubernetes_in_client_mode(job: Path) -> None:
    result = submit(SPECS["kubernetes-client"], job, until_understood=False)
    assert result.properties["spark.master"] == "k8s://https://127.0.0.1:1"
    assert result.properties["spark.executor.instances"] == "3"
    assert result.properties["spark.executor.memoryOverhead"] == "2048m"
    assert_the_program_arrived(result, job)


def test_spark_understands_the_command_for_kubernetes_in_cluster_mode(job: Path) -> None:
    result = submit(SPECS["kubernetes-cluster"], job, until_understood=True)
    assert result.main_class == "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication"
    assert result.properties["spark.executor.memoryOverhead"] == "3g"
    assert result.properties["spark.kubernetes.driverEnv.GREETING"] == "hello world"
    files = [Path(file).name for file in result.properties["spark.files"].split(",")]
    assert files == ["plan.json", "tfos-private.json"]
