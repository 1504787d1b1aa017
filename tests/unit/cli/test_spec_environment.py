"""The rules about the Python environment that travels with a job."""

from __future__ import annotations

import io
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfos_cli.spec.checks import environment
from tfos_cli.spec.loader import load_spec
from tfos_cli.spec.rules import Finding, Level, check

Check = Callable[..., dict[str, Finding]]
HERE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site.py"


@pytest.fixture
def findings(tmp_path: Path) -> Check:
    """Findings about packing, by id, of a job on a Standalone cluster."""

    def run(pack: str, *, variables: Mapping[str, str] | None = None, spark: Mapping[str, Any] | None = None) -> dict[str, Finding]:
        (tmp_path / "app.py").write_text("def main_fun(args, ctx): ...\n")
        spec = {
            "name": "packed",
            "entrypoint": "app.py:main_fun",
            "num_executors": 1,
            "input_mode": "tensorflow",
            "environment": {"pack": pack, "vars": dict(variables or {})},
            "spark": {"master": "spark://localhost:7077"} | dict(spark or {}),
        }
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
        resolved = load_spec(tmp_path / "job.yaml", environ={})
        found = check(resolved, environ={"TFOS_HOME": str(tmp_path / "home")}, platform="linux")
        return {finding.id: finding for finding in found if finding.id.startswith("pack-")}

    return run


def write_tar(path: Path, *names: str, mode: int = 0o755) -> None:
    with tarfile.open(path, "w:gz") as packed:
        for name in names:
            info = tarfile.TarInfo(name)
            info.mode, info.size = mode, 1
            packed.addfile(info, io.BytesIO(b"x"))


def write_zip(path: Path, *names: str, mode: int = 0o100755) -> None:
    with zipfile.ZipFile(path, "w") as packed:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, "x")


@pytest.mark.parametrize("master", [None, "local-cluster[1,1,1024]"])
def test_a_pack_for_this_machine_is_not_needed(findings: Check, master: str | None) -> None:
    finding = findings("venv", spark={"master": master})["pack-not-needed"]
    assert finding.level is Level.WARNING
    assert findings("none", spark={"master": master}) == {}


@pytest.mark.parametrize(("pack", "mark"), [("venv", "pyvenv.cfg"), ("conda", "conda-meta")])
def test_only_an_environment_of_that_kind_can_be_packed(
    findings: Check, pack: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.sys, "prefix", str(tmp_path / "prefix"))
    assert findings(pack)["pack-not-here"].level is Level.WARNING
    (tmp_path / "prefix" / mark).mkdir(parents=True)
    if pack == "conda":
        monkeypatch.setattr(environment.importlib.util, "find_spec", lambda _name: None)
        assert "conda-pack" in findings(pack)["pack-not-here"].message
        monkeypatch.setattr(environment.importlib.util, "find_spec", lambda _name: object())
    else:
        (tmp_path / "prefix" / mark).rmdir()
        (tmp_path / "prefix" / mark).touch()
    assert findings(pack) == {}


@pytest.mark.parametrize(
    ("pack", "rule"),
    [
        ("missing.tar.gz", "pack-missing"),
        ("env", "pack-not-an-archive"),
        ("env.tar", "pack-not-an-archive"),
        ("env.tar.gz#mine", "pack-not-an-archive"),
        ("broken.tar.gz", "pack-not-an-archive"),
        ("broken.zip", "pack-not-an-archive"),
        ("folder.tar.gz", "pack-not-an-environment"),
        ("weak.tar.gz", "pack-not-an-environment"),
        ("weak.zip", "pack-not-an-environment"),
        ("old.tar.gz", "pack-other-python"),
    ],
)
def test_an_archive_that_can_not_work_is_refused(findings: Check, pack: str, rule: str, tmp_path: Path) -> None:
    for name in ("broken.tar.gz", "broken.zip"):
        (tmp_path / name).write_text("no archive")
    write_tar(tmp_path / "folder.tar.gz", "venv/bin/python", f"venv/{HERE}")
    write_tar(tmp_path / "weak.tar.gz", "bin/python", HERE, mode=0o644)
    write_zip(tmp_path / "weak.zip", "bin/python", HERE, mode=0o100644)
    write_tar(tmp_path / "old.tar.gz", "bin/python", "lib/python2.7/site.py")
    found = findings(pack)
    assert list(found) == [rule]
    assert found[rule].level is Level.ERROR


@pytest.mark.parametrize("prefix", ["", "./"])
def test_a_good_archive_has_no_finding(findings: Check, prefix: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "env.tar.gz", f"{prefix}bin/python", f"{prefix}{HERE}")
    assert findings("env.tar.gz") == {}
    assert findings("hdfs:///envs/env.tar.gz") == {}


def test_a_zip_is_told_to_lose_its_permissions_on_old_sparks(findings: Check, tmp_path: Path) -> None:
    write_zip(tmp_path / "env.zip", "bin/python", HERE)
    assert findings("env.zip")["pack-zip"].level is Level.WARNING


def test_two_settings_of_the_same_thing_are_refused(findings: Check) -> None:
    assert findings("venv", variables={"PYSPARK_PYTHON": "/usr/bin/python3"})["pack-and-python"].level is Level.ERROR
    assert findings("venv", spark={"conf": {"spark.pyspark.python": "python3"}})["pack-and-python"].level is Level.ERROR
    (finding,) = findings("venv", spark={"archives": ["hdfs:///a.zip#environment"]}).values()
    assert (finding.id, finding.level) == ("pack-and-archive", Level.ERROR)
    assert findings("none", variables={"PYSPARK_PYTHON": "/usr/bin/python3"}) == {}


@pytest.mark.parametrize("number", [0, 1])
def test_the_specs_of_the_page_are_right(number: int, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "environments.md").read_text(encoding="utf-8")
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "train.py").write_text("def main_fun(args, ctx): ...\n")
    (tmp_path / "job.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[number])
    resolved = load_spec(tmp_path / "job.yaml", environ={})
    found = check(resolved, environ={"TFOS_HOME": str(tmp_path / "home"), "DB_PASSWORD": "x"}, platform="linux")
    assert [finding for finding in found if finding.level is Level.ERROR or finding.field.startswith("environment")] == []
