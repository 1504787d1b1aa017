"""The page about YARN says what is submitted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fakes.submissions import resolve

from tfos_cli.remote.place import record_place
from tfos_cli.submit.command import build_command

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "yarn.md").read_text(encoding="utf-8")
RUN = Path("/runs/RUN_ID")


def test_the_command_of_the_page_is_the_one_of_its_spec(tmp_path: Path) -> None:
    (spec,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```\n(spark-submit .*?)```", PAGE, re.DOTALL)
    command = build_command(
        resolve(spec, tmp_path), plan_path=RUN / "plan.json", run_folder=RUN, python="python", spark_home=Path("/opt/spark")
    )
    words = [word if "://" in word else re.sub(r"(?<![.\w])/[^ ,]*/", "", word) for word in command.argv]
    pairs = [f"{words[place]} {words[place + 1]}" for place in range(len(words) - 1)]
    said = shlex.split(shown)
    assert said[0] == words[0]
    assert said[-2:] == words[-2:]
    options = [f"{said[place]} {said[place + 1]}" for place in range(1, len(said) - 2, 2)]
    assert [option for option in options if option not in pairs] == []
    missing = [pair for pair in pairs if re.match(r"--[a-z-]+ [^-]", pair) and pair not in options]
    everywhere = r"--conf spark\.(dynamicAllocation|speculation|locality|scheduler|storage|yarn\.archive)"
    assert [pair for pair in missing if not re.match(everywhere, pair)] == []


def test_the_record_is_where_the_page_says(tmp_path: Path) -> None:
    (spec,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property></configuration>"
    )
    environ = {"HADOOP_CONF_DIR": str(tmp_path), "HADOOP_USER_NAME": "me"}
    assert record_place(resolve(spec, tmp_path).spec, "RUN_ID", environ) == "hdfs://nn:8020/user/me/.tfos/runs/RUN_ID"
    staged = spec.replace("conf: {", 'conf: {spark.yarn.stagingDir: "hdfs://other/stage", ')
    assert record_place(resolve(staged, tmp_path).spec, "RUN_ID", environ) == "hdfs://other/stage/.tfos/runs/RUN_ID"
