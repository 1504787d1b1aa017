"""`tfos infer` up to the submission: rules, dry run, what is refused before Spark starts, and how it is shown."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfos_cli.spec.loader import load_spec
from tfos_cli.spec.rules import check
from tfos_cli.submit.plan import build_plan
from tfos_cli.submit.properties import Location, spark_properties
from tfos_cli.ui.board import draw
from tfos_cli.ui.outcome import summary
from tfos_cli.ui.run_view import Phase, RunView, apply
from tfos_core import events
from tfos_core.jobplan import InferPlan

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[3]
MODEL = """\
name: answers
num_executors: 2
data: {path: rows.csv}
infer:
  export_dir: model
  keep: [id]
  output: {path: out}
"""
PROGRAM = """\
name: answers
entrypoint: app.py:main_fun
num_executors: 2
data: {path: rows.csv}
infer: {output: {path: out, format: json}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text("def main_fun(args, ctx): ...\n")
    (tmp_path / "rows.csv").write_text("id\n1\n")
    return tmp_path / "job.yaml"


def findings(spec: Path, text: str, verb: Any, *sets: str) -> dict[str, str]:
    spec.write_text(text)
    resolved = load_spec(spec, sets, verb=verb, version_of=lambda name: "2.21.0")
    return {finding.id: finding.field for finding in check(resolved, environ={"TFOS_HOME": str(spec.parent)})}


@pytest.mark.parametrize("verb", ["infer", None])
@pytest.mark.parametrize("text", [MODEL, PROGRAM], ids=["model", "program"])
def test_both_kinds_are_free_of_findings(text: str, verb: Any, spec: Path) -> None:
    assert findings(spec, text, verb) == {}


def test_a_spec_may_train_with_its_entrypoint_and_answer_with_its_model(spec: Path) -> None:
    text = MODEL + "entrypoint: app.py:main_fun\ninput_mode: tensorflow\n"
    for verb in ("train", "infer", None):
        assert findings(spec, text, verb) == {}


@pytest.mark.parametrize(
    ("text", "verb", "sets", "rule", "field"),
    [
        (MODEL, "train", (), "entrypoint-required", "entrypoint"),
        ("name: a\n", None, (), "entrypoint-required", "entrypoint"),
        ("name: a\nentrypoint: app.py:main_fun\ndata: {path: rows.csv}\n", "infer", (), "infer-required", "infer"),
        ("name: a\ndata: {path: rows.csv}\ninfer: {output: {path: o}}\n", "infer", (), "entrypoint-required", "infer.export_dir"),
        ("name: a\ninfer: {export_dir: m, output: {path: o}}\n", "infer", (), "data-required", "data"),
        (MODEL, "infer", ("infer.keep=[id, id]",), "infer-columns", "infer.keep"),
        (MODEL, "infer", ("infer.output_mapping={y: id}",), "infer-columns", "infer.output_mapping"),
        (MODEL, "infer", ("infer.bad_rows=out/",), "infer-paths", "infer.bad_rows"),
        (MODEL, "infer", ("environment.secrets=[HOME]",), "infer-secrets", "environment.secrets"),
        (MODEL, "infer", ("restart.max_restarts=1",), "infer-restart", "restart.max_restarts"),
        (PROGRAM, "infer", ("infer.keep=[id]",), "infer-program", "infer.keep"),
        (PROGRAM, "infer", ("infer.batch_size=7",), "infer-program", "infer.batch_size"),
        (PROGRAM, "infer", ("input_mode=tensorflow",), "infer-program", "input_mode"),
        (PROGRAM, "infer", ("mode=parallel", "input_mode=tensorflow"), "infer-program", "mode"),
    ],
)
def test_what_can_not_work_is_found(text: str, verb: Any, sets: tuple[str, ...], rule: str, field: str, spec: Path) -> None:
    assert findings(spec, text, verb, *sets).get(rule) == field


def test_training_ignores_the_section_infer(spec: Path) -> None:
    spec.write_text(PROGRAM)
    resolved = load_spec(spec, verb="train")
    assert build_plan(resolved, run_id="r", run_folder=spec.parent, channel=None).infer is None


def test_the_plan_has_absolute_paths_and_says_all_of_the_section(spec: Path) -> None:
    spec.write_text(MODEL)
    plan = build_plan(load_spec(spec, verb="infer"), run_id="r", run_folder=spec.parent, channel=None)
    folder = spec.parent
    assert plan.infer == InferPlan(output=str(folder / "out"), export_dir=str(folder / "model"), keep=("id",))
    assert (plan.entrypoint, plan.infer.bad_rows) == (None, None)
    on_yarn = load_spec(spec, ["infer.bad_rows=hdfs://nn/bad"], verb="infer", master="yarn")
    there = build_plan(on_yarn, run_id="r", run_folder=folder, channel=None).infer
    assert there is not None
    assert (there.output, there.bad_rows) == (f"file://{folder}/out", "hdfs://nn/bad")


def test_a_dry_run_names_model_and_output_and_no_nodes(spec: Path, run_line: RunLine) -> None:
    spec.write_text(MODEL)
    text = run_line(["tfos", "infer", str(spec), "--dry-run"]).stdout
    assert f"# model:     {spec.parent}/model (serving_default)" in text
    assert f"# output:    {spec.parent}/out (parquet, mode error)" in text
    assert "every Python worker of Spark loads the model" in text
    found = json.loads(run_line(["tfos", "infer", str(spec), "--dry-run", "--json"]).stdout)
    assert (found["nodes"], found["num_nodes"]) == ([], 0)
    spec.write_text(PROGRAM)
    assert "nodes:     2 (1 chief, 1 worker)" in run_line(["tfos", "infer", str(spec), "--dry-run"]).stdout


def test_validate_says_what_would_run(spec: Path, run_line: RunLine) -> None:
    spec.write_text(MODEL)
    assert "model:     model, on the rows of rows.csv" in run_line(["tfos", "validate", str(spec), "--strict"]).stdout


def test_a_missing_model_and_an_existing_output_are_told_before_anything_starts(
    spec: Path, run_line: RunLine, tfos_home: Path
) -> None:
    spec.write_text(MODEL)
    missing = run_line(["tfos", "infer", str(spec)], 2).stderr
    assert f"there is no model at {spec.parent}/model (infer.export_dir, {spec}:5)" in missing
    (spec.parent / "model").mkdir()
    (spec.parent / "out").mkdir()
    exists = run_line(["tfos", "infer", str(spec)], 2).stderr
    assert f"the output {spec.parent}/out exists" in exists
    assert "overwrite or append" in exists
    assert not tfos_home.exists()


@pytest.mark.parametrize("number", [0, 1])
def test_the_specs_of_the_page_are_valid_beside_the_digits(number: int, tmp_path: Path, run_line: RunLine) -> None:
    page = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    for name in ("data", "apps"):
        (tmp_path / name).symlink_to(ROOT / "jobspecs" / name)
    (tmp_path / "job.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[number])
    run_line("tfos validate job.yaml --strict")


PROGRESS = events.InferProgress(partitions_done=1, partitions=4, rows=1200, rows_per_s=600.0, rows_bad=2)
FINISHED = events.InferFinished(partitions=4, rows=5000, rows_out=4998, rows_bad=2, seconds=10.0, output="/out", bad_rows="/bad")


def drawn(view: RunView) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=160)
    console.print(draw(view, 200.0))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_rate_and_partitions_are_in_the_view() -> None:
    view = apply(RunView(name="answers", master="here", started=100.0), 101.0, PROGRESS)
    assert view.phase is Phase.ANSWERING
    shown = drawn(view)
    for text in ("1 of 4 partitions", "1,200 rows", "600 rows/s", "2 bad"):
        assert text in shown
    view = apply(view, 111.0, FINISHED)
    assert view.inference is not None
    assert (view.inference.partitions_done, view.inference.rows_per_s) == (4, 500.0)


def test_the_result_says_how_many_rows_went_in_and_out() -> None:
    counts = {"rows_in": 5000, "rows_out": 4998, "rows_bad": 2, "partitions": 4, "output": "/out", "bad_rows": "/bad"}
    result = events.Result(status="success", exit_code=0, inference=counts)
    lines = summary(RunView(run_id="r-1", name="answers"), result)
    assert "  rows       5000 in, 4998 out" in lines
    assert "  output     /out" in lines
    assert "  bad rows   2 in /bad" in lines


@pytest.mark.parametrize(
    ("gpus", "cores", "amount"), [("1", 1, "1"), ("1", 4, "0.25"), ("3", 2, "1"), ("1", 3, "0.333333"), ("0", 1, None)]
)
def test_tasks_with_a_model_ask_for_their_part_of_the_gpus(gpus: str, cores: int, amount: str | None, spec: Path) -> None:
    spec.write_text(MODEL)
    sets = [f"gpus={gpus}", f"spark.executor_cores={cores}"]
    resolved = load_spec(spec, sets, verb="infer", master="spark://h:7077")
    location = Location(run_folder=spec.parent, plan=spec, python="python3", py_files=())
    assert spark_properties(resolved, location).get("spark.task.resource.gpu.amount") == amount
