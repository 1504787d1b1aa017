"""Which Spark and which Java are used, tried with folders and small programs that look like them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from tfos_cli.submit.java import JavaQuestion, check_java
from tfos_cli.submit.spark_home import SparkHome, link_private_home, locate_spark
from tfos_core.errors import EnvironmentCheckError


def make_spark(folder: Path, version: str = "4.0.1") -> Path:
    for name in ("bin", "jars", "python", "work", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "spark-submit").write_text("")
    (folder / "jars" / f"spark-core_2.13-{version}.jar").write_text("")
    (folder / "work" / "old").write_text("")
    return folder


def make_java(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder


def spark_of(version: str) -> SparkHome:
    return SparkHome(path=Path("/opt/spark"), version=version, source="SPARK_HOME")


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


def test_spark_home_of_the_environment_wins(tmp_path: Path) -> None:
    spark = locate_spark({"SPARK_HOME": str(make_spark(tmp_path / "spark", "3.5.7"))})
    assert (spark.path, spark.version, spark.release, spark.source) == (tmp_path / "spark", "3.5.7", (3, 5), "SPARK_HOME")


def test_otherwise_it_is_the_pyspark_package_which_is_not_imported() -> None:
    before = "pyspark" in sys.modules
    spark = locate_spark({})
    assert spark.path.name == "pyspark"
    assert spark.release >= (3, 5)
    assert ("pyspark" in sys.modules) == before


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8"])
def test_a_spark_that_is_too_old_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match=f"Spark {version} at .* is too old: tfos needs 3.5 or newer"):
        locate_spark({"SPARK_HOME": str(make_spark(tmp_path / "spark", version))})


def test_a_spark_home_without_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match="is no Spark installation") as caught:
        locate_spark({"SPARK_HOME": str(tmp_path)})
    assert "SPARK_HOME" in str(caught.value.hint)


def test_without_any_spark_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentCheckError, match="no Spark was found") as caught:
        locate_spark({})
    assert "pip install pyspark" in str(caught.value.hint)


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_the_version_of_java_is_read(said: str, version: int, tmp_path: Path) -> None:
    java = check_java({"JAVA_HOME": str(make_java(tmp_path / "jdk", says(said)))}, spark_of("4.0.1"))
    assert (java.path, java.version) == (tmp_path / "jdk" / "bin" / "java", version)


def test_spark_3_runs_on_java_8(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(make_java(tmp_path / "jdk", says("1.8.0_392")))}
    assert check_java(environ, spark_of("3.5.7")).version == 8
    with pytest.raises(EnvironmentCheckError, match=r"Java 8 at .* is too old: Spark 4.0.1 needs Java 17 or newer"):
        check_java(environ, spark_of("4.0.1"))


def test_java_home_counts_before_the_path_as_for_spark(tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "on-path", says("21.0.1"))
    environ = {"PATH": str(on_path / "bin")}
    assert check_java(environ, spark_of("4.0.1")).version == 21
    with pytest.raises(EnvironmentCheckError, match="JAVA_HOME is /nowhere, but there is no program bin/java in it"):
        check_java(environ | {"JAVA_HOME": "/nowhere"}, spark_of("4.0.1"))


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match="no Java was found") as caught:
        check_java({"PATH": str(tmp_path)}, spark_of("4.0.1"))
    assert "17" in str(caught.value.hint)
    assert "JAVA_HOME" in str(caught.value.hint)


@pytest.mark.parametrize("script", ["echo 'Unable to locate a Java Runtime.' >&2; exit 1", "exit 0"])
def test_a_java_that_does_not_start_is_refused(script: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match=r"Java at .* does not start: (Unable to locate|exit code 0)"):
        check_java({"JAVA_HOME": str(make_java(tmp_path / "jdk", script))}, spark_of("4.0.1"))


def test_java_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    environ = {
        "JAVA_HOME": str(
            make_java(
                tmp_path / "jdk", f"echo $$ > {tmp_path / 'pid.new'}; mv {tmp_path / 'pid.new'} {tmp_path / 'pid'}; exec sleep 60"
            )
        )
    }
    with JavaQuestion(environ):
        pid = int(wait_for_text(tmp_path / "pid"))
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_asking_java_raises_nothing_before_the_answer_is_wanted(tmp_path: Path) -> None:
    with JavaQuestion({"JAVA_HOME": "/nowhere"}) as missing, pytest.raises(EnvironmentCheckError, match="JAVA_HOME is /nowhere"):
        missing.answer(spark_of("4.0.1"))
    broken = tmp_path / "jdk" / "bin" / "java"
    make_java(tmp_path / "jdk", "")
    broken.write_bytes(b"\x7fELF no program")
    with (
        JavaQuestion({"JAVA_HOME": str(tmp_path / "jdk")}) as question,
        pytest.raises(EnvironmentCheckError, match="does not start"),
    ):
        question.answer(spark_of("4.0.1"))


def wait_for_text(path: Path, deadline_s: float = 20.0) -> str:
    until = time.monotonic() + deadline_s
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.01)
    return path.read_text()


def test_a_private_home_has_everything_but_what_spark_writes(tmp_path: Path) -> None:
    original = make_spark(tmp_path / "spark")
    home = link_private_home(SparkHome(path=original, version="4.0.1", source=""), tmp_path / "run" / "home")
    assert {entry.name for entry in home.iterdir()} == {"bin", "jars", "python", "work", "logs"}
    assert (home / "bin" / "spark-submit").is_file()
    assert not list((home / "work").iterdir())
    (home / "work" / "app").mkdir()
    assert [entry.name for entry in (original / "work").iterdir()] == ["old"]
