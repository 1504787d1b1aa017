"""The page about executors with several cores says what is submitted."""

from __future__ import annotations

import re
from pathlib import Path

from fakes.submissions import resolve

from tfos_cli.submit.command import build_command

ROOT = Path(__file__).parents[3]
RUN = Path("/runs/r1")


def properties_of(spec: str, folder: Path) -> dict[str, str]:
    command = build_command(
        resolve(spec, folder), plan_path=RUN / "plan.json", run_folder=RUN, python="python", spark_home=Path("/opt/spark")
    )
    words = command.argv
    found = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
    return found | {word: words[i + 1] for i, word in enumerate(words) if word.startswith("--")}


def test_the_spec_of_the_page_gives_executors_four_cores_and_tasks_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "cores.md").read_text(encoding="utf-8"), re.DOTALL)
    spec = f"name: a\nentrypoint: company.app:main_fun\nnum_executors: 2\n{text}"
    assert properties_of(spec, tmp_path)["--master"] == "local-cluster[2,4,1024]"
    on_a_cluster = properties_of(spec.replace("{executor_cores", "{master: 'spark://h:7077', executor_cores"), tmp_path)
    assert on_a_cluster["--executor-cores"] == "4"
    assert on_a_cluster["spark.cores.max"] == "8"
    assert "spark.task.cpus" not in on_a_cluster
