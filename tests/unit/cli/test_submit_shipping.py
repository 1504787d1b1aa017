"""What travels with a job, and what stays behind."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fakes.submissions import resolve

from tfos_cli.submit import shipping
from tfos_cli.submit.references import parse_reference, references_of
from tfos_cli.submit.shipping import collect_sources, engine_archive, shipment_of, write_shipment
from tfos_core.errors import ConfigError

SPEC = "name: digits\nentrypoint: apps/digits.py:main_fun\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with a program and all kinds of neighbours."""
    for name in (
        "apps/digits.py",
        "apps/layers.py",
        "apps/models/net.py",
        "apps/pkg/__init__.py",
        "apps/pkg/deep/code.py",
        "apps/pkg/__pycache__/code.py",
        "apps/.hidden/secret.py",
        "apps/env/pyvenv.cfg",
        "apps/env/lib/thing.py",
        "apps/node_modules/x.py",
        "apps/not-a-module.py",
        "apps/data/train.csv",
        "apps/notes.txt",
        "elsewhere.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def names_of(job: Path, text: str = SPEC) -> set[str]:
    return set(collect_sources(references_of(resolve(text, job))).files)


def test_modules_and_packages_beside_the_program_travel_and_nothing_else(job: Path) -> None:
    assert names_of(job) == {"digits.py", "layers.py", "models/net.py", "pkg/__init__.py", "pkg/deep/code.py"}


def test_the_same_sources_give_the_same_bytes(job: Path) -> None:
    resolved = resolve(SPEC, job)
    write_shipment(resolved, job / "one")
    (job / "apps" / "digits.py").touch()
    write_shipment(resolved, job / "two")
    one, two = shipment_of(resolved, job / "one"), shipment_of(resolved, job / "two")
    assert [file.read_bytes() for file in one.py_files] == [file.read_bytes() for file in two.py_files]


def test_the_engine_is_imported_from_its_archive_alone(tmp_path: Path) -> None:
    archive = tmp_path / "tfos_core.zip"
    archive.write_bytes(engine_archive())
    assert all(name.startswith("tfos_core/") and name.endswith((".py", "/")) for name in zipfile.ZipFile(archive).namelist())
    code = "import tfos_core.jobplan, tfos_core.errors as e; print(e.__file__)"
    environment = {"PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(str(archive))


def test_executors_of_this_machine_get_the_engine_uncompressed_and_the_same(job: Path) -> None:
    here, elsewhere = (resolve(text, job) for text in (SPEC, f"{SPEC}spark: {{master: 'spark://h:7077'}}\n"))
    write_shipment(here, job / "here")
    write_shipment(elsewhere, job / "elsewhere")
    with (
        zipfile.ZipFile(shipment_of(here, job / "here").engine) as one,
        zipfile.ZipFile(shipment_of(elsewhere, job / "elsewhere").engine) as two,
    ):
        assert {info.compress_type for info in one.infolist()} == {zipfile.ZIP_STORED}
        assert zipfile.ZIP_DEFLATED in {info.compress_type for info in two.infolist()}
        assert {name: one.read(name) for name in one.namelist()} == {name: two.read(name) for name in two.namelist()}


def test_a_package_without_init_is_imported_from_the_archive(job: Path) -> None:
    resolved = resolve(SPEC, job)
    write_shipment(resolved, job / "run")
    archive = shipment_of(resolved, job / "run").application
    done = subprocess.run(
        [sys.executable, "-c", "import models.net, pkg.deep.code; print(models.net.__file__)"],
        env={"PYTHONPATH": str(archive)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(str(archive))


def test_the_shim_lies_where_no_module_of_ours_hides_one_of_the_users(job: Path) -> None:
    write_shipment(resolve(SPEC, job), job / "run")
    folder = shipment_of(resolve(SPEC, job), job / "run").shim.parent
    assert {entry.name for entry in folder.iterdir()} == {"tfos_driver.py", "tfos_core.zip", "application.zip"}


def test_a_neighbour_with_the_name_of_a_real_module_stays_behind_and_is_named(job: Path) -> None:
    (job / "apps" / "queue.py").write_text("")
    (job / "apps" / "tensorflow").mkdir()
    (job / "apps" / "tensorflow" / "__init__.py").write_text("")
    assert write_shipment(resolve(SPEC, job), job / "run") == ("queue", "tensorflow")
    assert names_of(job) >= {"digits.py"}
    assert not {"queue.py", "tensorflow/__init__.py"} & names_of(job)


def test_functions_from_two_folders_travel_together(job: Path) -> None:
    text = SPEC + "data: {path: x.csv, transform: elsewhere.py:prepare}\n"
    assert {"digits.py", "elsewhere.py"} <= names_of(job, text)


def test_two_modules_of_one_name_are_refused(job: Path) -> None:
    (job / "layers.py").write_text("other")
    with pytest.raises(ConfigError, match=r"apps/layers.py and .*/layers.py would both be imported as 'layers'"):
        names_of(job, SPEC + "data: {path: x.csv, transform: elsewhere.py:prepare}\n")


def test_a_link_to_a_folder_above_does_not_go_round_for_ever(job: Path) -> None:
    (job / "apps" / "pkg" / "again").symlink_to(job / "apps")
    assert "digits.py" in names_of(job)


def test_a_program_in_a_folder_full_of_python_files_is_refused(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MOST_FILES", 3)
    with pytest.raises(ConfigError, match="has more than 3 Python files") as caught:
        names_of(job)
    assert "folder of their own" in str(caught.value.hint)


def test_a_folder_without_end_is_refused(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "MOST_FOLDERS", 1)
    with pytest.raises(ConfigError, match="has more than 1 folders"):
        names_of(job)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"entrypoint is 'apps/digits.py:main_fun', but there is no file .*/apps/digits.py"):
        names_of(tmp_path)


def test_a_file_is_imported_under_its_own_name() -> None:
    reference = parse_reference("entrypoint", "apps/digits.py:main_fun", Path("/job"))
    assert (reference.module, reference.function, reference.file) == ("digits", "main_fun", Path("/job/apps/digits.py"))


def test_a_module_name_is_taken_as_it_is() -> None:
    reference = parse_reference("entrypoint", "package.module:main_fun", Path("/job"))
    assert (reference.module, reference.function, reference.file) == ("package.module", "main_fun", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apps/digits.py", "neither FILE.py:function nor package.module:function"),
        ("apps/digits.py:main-fun", "neither FILE.py:function nor package.module:function"),
        ("apps/digits:main_fun", "'apps/digits' is neither a file that ends in .py nor a module name"),
        ("apps/my-app.py:main_fun", "a file named 'my-app.py' can not be imported"),
        ("apps/random.py:main_fun", "a module 'random' exists already"),
        ("apps/tfos_core.py:main_fun", "a module 'tfos_core' exists already"),
        ("apps/tensorflow.py:main_fun", "a module 'tensorflow' exists already"),
    ],
)
def test_a_reference_that_can_not_work_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_reference("entrypoint", text, Path("/job"))
    assert caught.value.hint
