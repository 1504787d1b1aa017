"""`tfos validate` and `tfos schema` as users run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfos_cli.spec.schema import reference_table

ROOT = Path(__file__).parents[3]

GOOD = """\
name: digits
entrypoint: app.py:main_fun
num_executors: 2
input_mode: tensorflow
keras: legacy
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A good spec, job.yaml, with its app."""
    (tmp_path / "app.py").write_text("def main_fun(args, ctx): ...\n")
    (tmp_path / "job.yaml").write_text(GOOD)
    return tmp_path / "job.yaml"


Run = Callable[..., Any]


def test_a_good_spec_exits_0_and_says_what_would_run(run_line: Run, job: Path) -> None:
    outcome = run_line("tfos validate job.yaml")
    assert "nodes:     2 (1 chief, 1 worker)" in outcome.stdout
    assert "executors: 2, each with cores: 1, memory: 1g" in outcome.stdout
    assert outcome.stdout.rstrip().endswith("job.yaml: no errors, no warnings")
    assert outcome.stderr == ""


def test_an_error_exits_2_and_says_where_and_what_to_do(run_line: Run, job: Path) -> None:
    outcome = run_line("tfos validate job.yaml --set num_ps=2", 2)
    assert "error: 2 nodes leave no worker beside 2 ps, chief  [roles-add-up]" in outcome.stdout
    assert "where: num_executors is 2, set by job.yaml:3" in outcome.stdout
    assert "fix:   Set num_executors to at least 3" in outcome.stdout
    assert "job.yaml: 1 error, 0 warnings" in outcome.stdout


def test_a_warning_exits_0_unless_strict(run_line: Run, job: Path) -> None:
    line = "tfos validate job.yaml --set master_node=master"
    assert "warning: MultiWorkerMirroredStrategy refuses the role master" in run_line(line).stdout
    assert "0 errors, 1 warning (--strict: warnings count)" in run_line(f"{line} --strict", 2).stdout


def test_mistakes_of_the_file_are_findings_on_stdout(run_line: Run, job: Path) -> None:
    job.write_text(GOOD + "num_ps: x\neval_nod: true\n")
    outcome = run_line("tfos validate job.yaml", 2)
    assert "error: num_ps is 'x', expected a whole number  [spec]\n  where: job.yaml:6" in outcome.stdout
    assert "error: unknown key 'eval_nod'  [spec]\n  where: job.yaml:7\n  fix:   Did you mean 'eval_node'?" in outcome.stdout
    assert outcome.stderr == ""


def test_a_missing_spec_exits_2(run_line: Run, job: Path) -> None:
    assert "there is no such file" in run_line("tfos validate nothing.yaml", 2).stdout


def test_json_is_one_document_with_everything(run_line: Run, job: Path) -> None:
    report = json.loads(run_line("tfos validate job.yaml --json --set num_executors=1 -e API_TOKEN=s3cr3t").stdout)
    assert (report["ok"], report["errors"], report["warnings"]) == (True, 0, 1)
    (finding,) = report["findings"]
    assert finding["id"] == "secret-in-vars"
    assert finding["source"] == "-e API_TOKEN"
    assert "s3cr3t" not in json.dumps(report)
    assert report["summary"]["nodes"] == ["chief:0"]
    assert report["summary"]["executors"] == 1


def test_json_of_a_spec_that_can_not_be_read_has_no_summary(run_line: Run, job: Path) -> None:
    job.write_text("- a\n")
    report = json.loads(run_line("tfos validate job.yaml --json", 2).stdout)
    assert (report["ok"], report["summary"], report["findings"][0]["id"]) == (False, None, "spec")


def test_flags_and_the_environment_count_as_in_train(run_line: Run, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOS_SET_NUM_EXECUTORS", "3")
    monkeypatch.setenv("TFOS_SERVERHOST", "x")
    found = json.loads(run_line("tfos validate job.yaml --json --master local[2] --conf spark.speculation=true", 2).stdout)
    sources = {finding["id"]: finding["source"] for finding in found["findings"]}
    assert sources["local-master"] == "--master"
    assert sources["fixed-executors"] == "--conf spark.speculation"
    assert sources["unknown-environment"] == "environment:TFOS_SERVERHOST"
    assert found["summary"]["executors"] == 3


def test_a_home_below_a_file_exits_2(run_line: Run, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOS_HOME", str(job / "home"))
    assert "[run-folder]" in run_line("tfos validate job.yaml", 2).stdout


def test_schema_prints_a_json_schema_that_is_closed_and_knows_the_shorthands(run_line: Run) -> None:
    schema = json.loads(run_line("tfos schema").stdout)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name"]
    assert {"required": ["entrypoint"]} in schema["anyOf"]
    kinds = [option.get("type", option.get("$ref")) for option in schema["properties"]["gpus"]["anyOf"]]
    assert kinds == ["integer", "#/$defs/Gpus"]
    assert schema["properties"]["tensorboard"]["anyOf"][0]["type"] == "boolean"
    fields = [field for section in schema["$defs"].values() for field in section["properties"].values()]
    assert all("description" in field or "$ref" in field for field in fields)


def test_the_table_in_the_docs_is_what_the_models_say() -> None:
    """Run `tfos schema --markdown` and paste it between the marks of docs/spec.md."""
    text = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    table = text.partition("<!-- generated by `tfos schema --markdown` -->\n")[2].partition("<!-- end -->")[0]
    assert table.rstrip("\n") == reference_table().rstrip("\n")


def test_every_finding_is_in_the_docs_and_nothing_else() -> None:
    sources = (ROOT / "tfos_cli" / "spec").rglob("*.py")
    pattern = re.compile(r'(?:\.(?:conf_)?(?:error|warning)\(\s*|\bid=)"([a-z0-9-]+)"')
    used = {rule for source in sources for rule in pattern.findall(source.read_text(encoding="utf-8"))}
    text = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8").partition("## Findings")[2]
    assert used == set(re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("words", [["validate", "job.yaml"], ["schema"]])
def test_validate_and_schema_import_neither_spark_nor_tensorflow(job: Path, words: list[str]) -> None:
    """Both take seconds to import; a check that is slow is not run."""
    program = (
        "import sys; from tfos_cli.main import run; code = run(sys.argv[1:]); "
        "sys.stderr.write(','.join(sorted({name.partition('.')[0] for name in sys.modules}))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=job.parent, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stderr.split(","))
    assert "tfos_cli" in loaded
    assert not loaded & {"pyspark", "tensorflow", "keras", "tf_keras", "numpy", "pandas", "pyarrow"}
