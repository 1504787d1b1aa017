"""GPUs in what is submitted: Spark's properties, the script that travels, the plan, and what a dry run and a status say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes.nvidia_smi import install
from fakes.submissions import resolve

from tfos_cli.submit.command import SparkSubmitCommand, build_command
from tfos_cli.submit.dry_run import DryRun
from tfos_cli.submit.plan import build_plan
from tfos_cli.submit.shipping import shipment_of, write_shipment
from tfos_cli.submit.spark_home import SparkHome
from tfos_cli.ui.progress import plain_line
from tfos_cli.ui.run_view import RunView, apply
from tfos_core import events
from tfos_core.jobplan import JobPlan

ROOT = Path(__file__).parents[3]
RUN = Path("/runs/r1")
AMOUNT = "spark.executor.resource.gpu.amount"
SCRIPT = "spark.executor.resource.gpu.discoveryScript"
STANDALONE, YARN, KUBERNETES = "spark://h:7077", "yarn", "k8s://https://h:6443"


def spec_of(master: str | None, gpus: str = "2", conf: str = "") -> str:
    spark = f"{{master: '{master}', conf: {{{conf}}}}}" if master else f"{{conf: {{{conf}}}}}"
    return f"name: digits\nentrypoint: apps/digits.py:main_fun\nnum_executors: 3\ngpus: {gpus}\nspark: {spark}\n"


def command_of(text: str, folder: Path) -> SparkSubmitCommand:
    resolved = resolve(text, folder)
    return build_command(
        resolved, plan_path=RUN / "plan.json", run_folder=RUN, python="/opt/venv/bin/python", spark_home=Path("/opt/spark")
    )


def gpu_properties_of(command: SparkSubmitCommand) -> Mapping[str, str]:
    words = command.argv
    pairs = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
    return {key: value for key, value in pairs.items() if ".gpu." in key}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        (STANDALONE, {AMOUNT: "2"}),
        (YARN, {AMOUNT: "2", SCRIPT: "./gpu_discovery.sh"}),
        (
            KUBERNETES,
            {
                AMOUNT: "2",
                "spark.executor.resource.gpu.vendor": "nvidia.com",
                SCRIPT: "/opt/spark/examples/src/main/scripts/getGpusResources.sh",
            },
        ),
        (None, {}),
        ("local-cluster[3,1,1024]", {}),
    ],
)
def test_executors_ask_for_the_gpus_of_a_node_and_tasks_for_none(
    master: str | None, expected: Mapping[str, str], tmp_path: Path
) -> None:
    assert gpu_properties_of(command_of(spec_of(master), tmp_path)) == expected


@pytest.mark.parametrize("master", [STANDALONE, YARN])
@pytest.mark.parametrize("gpus", ["0", "{per_node: 2, source: nvidia-smi}"])
def test_nothing_is_asked_of_spark_when_it_is_not_the_source(master: str, gpus: str, tmp_path: Path) -> None:
    assert gpu_properties_of(command_of(spec_of(master, gpus), tmp_path)) == {}


def test_the_users_own_script_and_amount_count(tmp_path: Path) -> None:
    command = command_of(spec_of(YARN, conf=f"{SCRIPT}: /opt/find-gpus, {AMOUNT}: '4'"), tmp_path)
    assert gpu_properties_of(command) == {SCRIPT: "/opt/find-gpus", AMOUNT: "4"}
    assert "--files" not in command.argv


def test_the_script_travels_where_spark_brings_it_in_time(tmp_path: Path) -> None:
    command = command_of(spec_of(YARN), tmp_path)
    assert command.argv[command.argv.index("--files") + 1] == "/runs/r1/ship/gpu_discovery.sh"
    (tmp_path / "apps").mkdir(exist_ok=True)
    (tmp_path / "apps" / "digits.py").write_text("def main_fun(args, ctx): pass\n")
    resolved = resolve(spec_of(YARN), tmp_path)
    write_shipment(resolved, tmp_path / "run")
    script = shipment_of(resolved, tmp_path / "run").gpu_discovery
    assert script is not None
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/bin/sh\n")
    assert shipment_of(resolve(spec_of(STANDALONE), tmp_path), RUN).gpu_discovery is None


@pytest.mark.parametrize("source", ["auto", "spark", "nvidia-smi"])
def test_the_plan_says_how_many_and_from_whom(source: str, tmp_path: Path) -> None:
    resolved = resolve(spec_of(STANDALONE, f"{{per_node: 2, source: {source}}}"), tmp_path)
    plan = build_plan(resolved, run_id="r1", run_folder=RUN, channel=None)
    assert (plan.gpus, plan.gpu_source) == (2, source)
    assert JobPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("master", "said"),
    [(STANDALONE, "from Spark's resource scheduling"), (None, "found with nvidia-smi by the nodes of each host")],
)
def test_a_dry_run_says_who_hands_them_out(master: str | None, said: str, tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir(exist_ok=True)
    (tmp_path / "apps" / "digits.py").write_text("def main_fun(args, ctx): pass\n")
    spark = SparkHome(path=Path("/opt/spark"), version="4.3.0", source="SPARK_HOME")
    text = DryRun.of(resolve(spec_of(master), tmp_path), run_id="r1", run_folder=RUN, spark=spark, python="python").text()
    assert f"# gpus:      2 for each node that trains, {said}\n" in text
    without = DryRun.of(resolve(spec_of(master, "0"), tmp_path), run_id="r1", run_folder=RUN, spark=spark, python="python").text()
    assert "# gpus:" not in without


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_specs_of_the_page_are_right(tmp_path: Path) -> None:
    found = [resolve(f"name: a\nentrypoint: a.py:f\nnum_executors: 1\n{text}", tmp_path).spec.gpus for text in blocks("yaml")]
    assert [(gpus.per_node, gpus.source) for gpus in found] == [(1, "auto"), (2, "nvidia-smi")]


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "four_idle")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (program,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport os; print(gpus, os.environ['CUDA_VISIBLE_DEVICES'])"],
        capture_output=True,
        text=True,
        timeout=60,
        env={key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"},
    )
    assert done.stdout == "0,1 0\n", done.stderr


def test_the_script_of_the_page_is_where_the_package_has_it() -> None:
    (shown,) = re.findall(r"discoveryScript +\S+/(tfos_core/\S+)", (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8"))
    assert os.access(ROOT / shown, os.X_OK)


def registered(*gpus: str) -> events.NodeRegistered:
    return events.NodeRegistered(
        node="worker:0", executor_id=0, host="10.0.0.7", port=4000, pid=1, registered=1, expected=2, gpus=gpus
    )


def test_who_got_which_gpu_is_in_the_view_of_a_run_and_in_its_lines() -> None:
    parsed = events.parse_line(events.to_line(registered("2", "3")))
    assert parsed is not None
    (node,) = apply(RunView(), *parsed).nodes
    assert node.gpus == ("2", "3")
    assert plain_line(parsed[1]) == "worker:0 registered from 10.0.0.7 (executor 0) with GPU 2,3, 1 of 2"
    assert plain_line(registered()) == "worker:0 registered from 10.0.0.7 (executor 0), 1 of 2"
