"""What a newcomer runs first: the example in both input modes, here and on a Standalone cluster, and the job of the README."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from testbed.commandline import Outcome
from testbed.standalone import StandaloneCluster

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[2]
MODES = ("spark", "tensorflow")
LONGEST_S = 150


def check(outcome: Outcome) -> Path:
    """The accuracy is good and said once, and there is one model, whole; returns the model's folder."""
    found = re.findall(r"test accuracy ([0-9.]+)", outcome.stdout)
    assert len(found) == 1, outcome.stdout
    assert float(found[0]) >= 0.95
    model = re.search(r"^ *model +(\S+)$", outcome.stdout, re.MULTILINE)
    assert model, outcome.stdout
    folder = Path(model[1])
    assert (folder / "saved_model.pb").is_file()
    assert list((folder / "variables").iterdir())
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "something is left of the export"
    return folder


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", MODES)
def test_the_example_trains_a_good_model_on_this_machine(
    mode: str, run_line: RunLine, tfos_home: Path, tmp_path: Path, nothing_left: None
) -> None:
    spec, export = ROOT / "jobspecs" / f"digits_{mode}.yaml", tmp_path / "exports" / "digits"
    line = ["tfos", "train", str(spec), "--set", f"args.export_dir={export}"]
    outcome = run_line(line, fresh=True, timeout_s=LONGEST_S)
    assert check(outcome) == export
    (record,) = (tfos_home / "runs").iterdir()
    assert list((record / "tensorboard").rglob("events.out.tfevents.*"))
    if mode == "spark":
        answer_as_well_as_it_said(outcome, export, run_line, tmp_path)


def said(trained: Outcome) -> tuple[int, int]:
    """How many images a training told right, and of how many."""
    told = re.search(r"\((\d+) of (\d+) images\)", trained.stdout)
    assert told is not None, trained.stdout
    return int(told[1]), int(told[2])


def answer_as_well_as_it_said(trained: Outcome, export: Path, run_line: RunLine, folder: Path) -> None:
    """Inference with the model over the test file tells as many digits as the training said."""
    correct, images = said(trained)
    line = ["tfos", "infer", str(ROOT / "jobspecs" / "digits_infer.yaml"), "--set", f"infer.export_dir={export}"]
    outcome = run_line([*line, "--set", f"infer.output.path={folder / 'digits'}"], fresh=True, timeout_s=LONGEST_S)
    assert f"rows       {images} in, {images} out" in outcome.stdout
    table = pq.read_table(folder / "digits")
    digits = np.array(table["probabilities"].to_pylist()).argmax(axis=1)
    assert (len(digits), (digits == table["label"].to_numpy()).sum()) == (images, correct)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_program_on_nodes_answers_as_well_as_the_training_said(run_line: RunLine, tmp_path: Path) -> None:
    export = tmp_path / "exports" / "digits"
    line = ["tfos", "train", str(ROOT / "jobspecs" / "digits_spark.yaml"), "--set", f"args.export_dir={export}"]
    trained = run_line(line, fresh=True, timeout_s=LONGEST_S)
    correct, images = said(trained)
    line = ["tfos", "infer", str(ROOT / "jobspecs" / "digits_answers.yaml"), "--set", f"args.export_dir={export}"]
    run_line([*line, "--set", f"infer.output.path={tmp_path / 'answers'}"], fresh=True, timeout_s=LONGEST_S)
    table = pq.read_table(tmp_path / "answers")
    assert (len(table), (table["digit"].to_numpy() == table["label"].to_numpy()).sum()) == (images, correct)


@pytest.mark.slow
def test_nodes_that_read_tfrecords_themselves_train_a_good_model(run_line: RunLine, tmp_path: Path) -> None:
    export = tmp_path / "exports" / "digits"
    line = ["tfos", "train", str(ROOT / "jobspecs" / "digits_tfrecord.yaml"), "--set", f"args.export_dir={export}"]
    assert check(run_line(line, fresh=True, timeout_s=LONGEST_S)) == export


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_example_trains_the_same_model_on_a_standalone_cluster(
    mode: str, run_line: RunLine, standalone: StandaloneCluster, tmp_path: Path
) -> None:
    spec, export = ROOT / "jobspecs" / f"digits_{mode}.yaml", tmp_path / "exports" / "digits"
    line = ["tfos", "train", str(spec), "--master", standalone.url, "--set", f"args.export_dir={export}"]
    assert check(run_line(line, fresh=True, timeout_s=LONGEST_S)) == export


def test_the_first_job_of_the_readme_runs_as_it_is_printed(run_line: RunLine, tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for kind, text in blocks:
        (tmp_path / ("first.py" if kind == "python" else "first.yaml")).write_text(text, encoding="utf-8")
    outcome = run_line("tfos train first.yaml", fresh=True, timeout_s=LONGEST_S)
    assert "rows fed" in outcome.stdout
    assert (tmp_path / "model" / "saved_model.pb").is_file()
