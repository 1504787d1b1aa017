"""Where Spark can not treat the tasks of one stage unlike others, every task takes a whole executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.submissions import resolve

from tfos_cli.spec.masters import MasterKind
from tfos_cli.submit.command import SparkSubmitCommand, build_command
from tfos_cli.submit.dry_run import DryRun
from tfos_cli.submit.one_per_executor import schedules_stages
from tfos_cli.submit.spark_home import SparkHome

RUN = Path("/runs/r1")
CPUS, GPUS = "spark.task.cpus", "spark.task.resource.gpu.amount"
K8S = "k8s://https://h:6443"


def spec_of(master: str | None, *, cores: int = 4, gpus: int = 0, conf: str = "") -> str:
    place = f"master: '{master}', " if master else ""
    return (
        f"name: digits\nentrypoint: company.app:main_fun\nnum_executors: 3\ngpus: {gpus}\n"
        f"spark: {{{place}executor_cores: {cores}, conf: {{{conf}}}}}\n"
    )


def asked(text: str, folder: Path, version: str | None) -> dict[str, str]:
    """What every task asks for."""
    command: SparkSubmitCommand = build_command(
        resolve(text, folder),
        plan_path=RUN / "plan.json",
        run_folder=RUN,
        python="/opt/venv/bin/python",
        spark_home=Path("/opt/spark"),
        spark_version=version,
    )
    words = command.argv
    pairs = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
    return {key: value for key, value in pairs.items() if key.startswith("spark.task.")}


@pytest.mark.parametrize("kind", [MasterKind.YARN, MasterKind.KUBERNETES])
@pytest.mark.parametrize(
    ("version", "can"),
    [("3.5.0", False), ("3.5.0.7-vendor", False), ("3.5.1", True), ("3.5.9", True), ("4.0.0", True), ("4.3", True), (None, True)],
)
def test_yarn_and_kubernetes_can_since_a_release(kind: MasterKind, version: str | None, can: bool) -> None:
    assert schedules_stages(kind, version) is can


@pytest.mark.parametrize("kind", [MasterKind.EMBEDDED, MasterKind.LOCAL_CLUSTER, MasterKind.STANDALONE])
def test_others_always_can(kind: MasterKind) -> None:
    assert schedules_stages(kind, "3.5.0")


@pytest.mark.parametrize("master", ["yarn", K8S])
def test_every_task_takes_a_whole_executor_where_stages_can_not_differ(master: str, tmp_path: Path) -> None:
    assert asked(spec_of(master), tmp_path, "3.5.0") == {CPUS: "4"}
    assert asked(spec_of(master, gpus=2), tmp_path, "3.5.0") == {CPUS: "4", GPUS: "2"}
    assert asked(spec_of(master, conf="spark.executor.cores: '8'"), tmp_path, "3.5.0") == {CPUS: "8"}
    # One core is what a task takes anyway.
    assert asked(spec_of(master, cores=1), tmp_path, "3.5.0") == {}


@pytest.mark.parametrize(("master", "version"), [("yarn", "3.5.1"), (K8S, None), ("spark://h:7077", "3.5.0"), (None, "3.5.0")])
def test_tasks_share_executors_where_stages_can_differ(master: str | None, version: str | None, tmp_path: Path) -> None:
    assert asked(spec_of(master, gpus=2), tmp_path, version) == {}


def test_the_users_own_property_wins(tmp_path: Path) -> None:
    assert asked(spec_of("yarn", conf=f"{CPUS}: '2'"), tmp_path, "3.5.0") == {CPUS: "2"}


@pytest.mark.parametrize(("version", "shown"), [("3.5.0", True), ("4.3.0", False)])
def test_a_dry_run_says_so(version: str, shown: bool, tmp_path: Path) -> None:
    spark = SparkHome(path=Path("/opt/spark"), version=version, source="SPARK_HOME")
    text = DryRun.of(resolve(spec_of("yarn"), tmp_path), run_id="r1", run_folder=RUN, spark=spark, python="python").text()
    said = "# tasks:     one at a time on each executor (Spark 3.5.0 can not give nodes more there)"
    assert (said in text.splitlines()) is shown
    assert (f"{CPUS}=4" in text) is shown
