"""The specs that we ship are right, for every kind of cluster."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfos_cli.spec.loader import load_spec
from tfos_core.direct.request import DataRequest, plan_share

if TYPE_CHECKING:
    from tests.conftest import RunLine

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "jobspecs").glob("*.yaml"))
MASTERS = ["", "--master spark://master.example:7077", "--master yarn"]


def test_both_input_modes_have_a_digits_spec_with_one_program() -> None:
    specs = [load_spec(ROOT / "jobspecs" / f"digits_{mode}.yaml").spec for mode in ("spark", "tensorflow")]
    assert [spec.input_mode for spec in specs] == ["spark", "tensorflow"]
    assert {spec.entrypoint for spec in specs} == {"apps/digits.py:main_fun"}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_every_spec_is_free_of_findings(spec: Path, run_line: RunLine) -> None:
    run_line(["tfos", "validate", str(spec), "--strict"])


@pytest.mark.parametrize("master", MASTERS, ids=["local", "standalone", "yarn"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_every_spec_can_be_shown_as_a_command(spec: Path, master: str, run_line: RunLine) -> None:
    verb = "infer" if load_spec(spec).spec.infer is not None else "train"
    outcome = run_line(["tfos", verb, str(spec), "--dry-run", *master.split()])
    assert "spark-submit" in outcome.stdout


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_every_spec_is_listed_in_the_readme_beside_it(spec: Path) -> None:
    assert f"({spec.name})" in (spec.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "images"), [("train", 1433), ("test", 364)])
def test_the_digits_are_as_their_readme_says(name: str, images: int) -> None:
    with (ROOT / "jobspecs" / "data" / "digits" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["label", *(f"p{i}" for i in range(64))]
    assert len(rows) == images
    assert all(0 <= int(value) <= 16 for row in rows for value in row[1:])
    assert set(Counter(row[0] for row in rows)) == set("0123456789")


@pytest.mark.parametrize("name", ["train", "test"])
def test_the_tfrecords_hold_the_images_of_the_csv_files(name: str) -> None:
    with (ROOT / "jobspecs" / "data" / "digits" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        wanted = Counter(tuple(map(int, row)) for row in list(csv.reader(file))[1:])
    path = str(ROOT / "jobspecs" / "data" / "digits_tfrecord" / name)
    blocks = plan_share(DataRequest(path=path, columns=["image", "label"]))()
    found = Counter(
        (int(label), *map(int, image.tolist())) for images, labels in blocks for image, label in zip(images, labels, strict=True)
    )
    assert found == wanted


def test_no_image_is_in_both_files() -> None:
    folder = ROOT / "jobspecs" / "data" / "digits"
    train, test = (set((folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()[1:]) for name in ("train", "test"))
    assert train & test == set()
