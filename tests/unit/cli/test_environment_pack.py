"""Which archive of a Python environment a run gets, what is in it, and when it is packed again."""

from __future__ import annotations

import gzip
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fakes.environments import install, make_conda, make_venv, site_of
from fakes.submissions import resolve

from tfos_cli.submit.command import SparkSubmitCommand, build_command
from tfos_cli.submit.dry_run import DryRun
from tfos_cli.submit.environment_pack import PackCache, shipped_environment, write_environment
from tfos_cli.submit.spark_home import SparkHome
from tfos_cli.submit.venv_archive import write_archive
from tfos_cli.submit.venv_files import inspect_venv
from tfos_core.errors import ConfigError, EnvironmentCheckError

BASE = "name: digits\nentrypoint: company.app:main_fun\nnum_executors: 2\n"
STANDALONE = "spark: {master: 'spark://h:7077'}\n"
RUN = Path("/home/me/.tfos/runs/r1")
PYTHON = "./environment/bin/python"


def spec(pack: str, more: str = STANDALONE, *, level: int = 1) -> str:
    return f"{BASE}environment: {{pack: {pack}, pack_level: {level}}}\n{more}"


def command_of(text: str, folder: Path) -> SparkSubmitCommand:
    return build_command(
        resolve(text, folder),
        plan_path=RUN / "plan.json",
        run_folder=RUN,
        python="/opt/venv/bin/python",
        spark_home=Path("/opt/spark"),
    )


def option_of(command: SparkSubmitCommand, option: str) -> str:
    return command.argv[command.argv.index(option) + 1]


def packed_names(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return set(packed.getnames())


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """One with a package, a script, and what stays behind."""
    folder = make_venv(tmp_path / "venv")
    script = f"#!{folder}/bin/python3\nimport sys, answer\nprint(answer.VALUE, sys.prefix, sys.argv[1:])\n"
    install(folder, "answer", {"answer.py": "VALUE = 42\n", "../../../bin/tell": script})
    (folder / "bin" / "tell").chmod(0o755)
    install(folder, "pyspark", {"pyspark/__init__.py": "", "pyspark/jars/a.jar": "x", "../../../bin/spark-submit": "#!/bin/sh\n"})
    install(folder, "tfos", {"_editable_impl_tfos.pth": "/somewhere\n"}, direct_url='{"dir_info": {"editable": true}}')
    install(folder, "tensorflow", {"tensorflow/__init__.py": "", "tensorflow/include/a.h": "", "tensorflow/tools/include/b": ""})
    return folder


# -- what is submitted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", ["venv", "conda"])
def test_executors_get_the_packed_python_and_the_driver_keeps_its_own(pack: str, tmp_path: Path) -> None:
    command = command_of(spec(pack), tmp_path)
    assert option_of(command, "--archives") == f"{RUN}/ship/environment.tar.gz#environment"
    assert command.environment["PYSPARK_PYTHON"] == PYTHON
    assert command.environment["PYSPARK_DRIVER_PYTHON"] == "/opt/venv/bin/python"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://127.0.0.1:1"])
def test_a_driver_on_the_cluster_uses_the_packed_python_too(master: str, tmp_path: Path) -> None:
    command = command_of(spec("venv", f"spark: {{master: '{master}', deploy_mode: cluster}}\n"), tmp_path)
    if master == "yarn":
        assert f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={PYTHON}" in command.argv
        assert "PYSPARK_DRIVER_PYTHON" not in command.environment
    else:  # Spark itself puts those of its own environment into the pod
        assert not any("PYSPARK_PYTHON" in word for word in command.argv)
        assert command.environment["PYSPARK_PYTHON"] == command.environment["PYSPARK_DRIVER_PYTHON"] == PYTHON


@pytest.mark.parametrize(
    ("pack", "shipped"),
    [
        ("envs/env.tar.gz", "{folder}/envs/env.tar.gz"),
        ("/opt/my env.zip", "file:///opt/my%20env.zip"),
        ("hdfs:///envs/env.tar.gz", "hdfs:///envs/env.tar.gz"),
    ],
)
def test_an_archive_of_the_user_is_shipped_as_it_is(pack: str, shipped: str, tmp_path: Path) -> None:
    command = command_of(spec(f"'{pack}'", "spark: {master: 'spark://h:7077', archives: ['a.zip#a']}\n"), tmp_path)
    assert option_of(command, "--archives") == f"{shipped.format(folder=tmp_path)}#environment,{tmp_path}/a.zip#a"
    assert command.environment["PYSPARK_PYTHON"] == PYTHON


@pytest.mark.parametrize("master", ["", "spark: {master: 'local-cluster[2,1,1024]'}\n"])
def test_executors_of_this_machine_need_none(master: str, tmp_path: Path) -> None:
    command = command_of(spec("venv", master), tmp_path)
    assert "--archives" not in command.argv
    assert command.environment["PYSPARK_PYTHON"] == "/opt/venv/bin/python"
    write_environment(resolve(spec("venv", master), tmp_path), tmp_path / "run", {"TFOS_HOME": str(tmp_path / "home")})
    assert not (tmp_path / "home").exists()


def test_a_dry_run_says_which_python_travels_and_packs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOS_HOME", str(tmp_path / "home"))
    spark = SparkHome(path=Path("/opt/spark"), version="4.3.0", source="SPARK_HOME")
    shown = DryRun.of(resolve(spec("venv"), tmp_path), run_id="r1", run_folder=RUN, spark=spark, python=sys.executable).text()
    assert f"{sys.prefix} travels; executors need Python 3.{sys.version_info[1]} in {sys.base_prefix}" in shown
    assert f"#   {RUN}/ship/environment.tar.gz" in shown
    assert not (tmp_path / "home").exists()


# -- what is packed ---------------------------------------------------------------------------------------------------------


def test_what_spark_and_the_engine_bring_stays_behind(venv: Path) -> None:
    names = {entry.name.removeprefix(f"{site_of(venv).relative_to(venv)}/") for entry in inspect_venv(venv).entries}
    assert {"pyvenv.cfg", "bin/python", "bin/python3", "lib64", "answer.py", "bin/tell", "tensorflow/tools/include/b"} <= names
    assert not {name for name in names if "pyspark" in name or "tfos" in name or "spark-submit" in name}
    assert "tensorflow/include/a.h" not in names
    assert "bin/activate" not in names
    assert inspect_venv(venv).lock == ("answer==1.0", "tensorflow==1.0")


def test_byte_code_of_this_python_travels_and_no_other(venv: Path) -> None:
    cache = site_of(venv) / "__pycache__"
    cache.mkdir()
    tag = sys.implementation.cache_tag
    for name in (f"answer.{tag}.pyc", f"answer.{tag}.opt-1.pyc", "answer.cpython-27.pyc", f"answer.{tag}-pytest-8.pyc"):
        (cache / name).write_bytes(b"x")
    assert [Path(entry.name).name for entry in inspect_venv(venv).entries if entry.is_byte_code] == [f"answer.{tag}.pyc"]


@pytest.mark.parametrize("level", [0, 1])
def test_an_unpacked_environment_works_anywhere(level: int, venv: Path, tmp_path: Path) -> None:
    archive, there = tmp_path / "env.tar.gz", tmp_path / "else where"
    write_archive(inspect_venv(venv), archive, level=level)
    gzip.decompress(archive.read_bytes())
    there.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", there], check=True, timeout=60)
    venv.rename(tmp_path / "gone")
    done = subprocess.run([there / "bin" / "tell", "a b"], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"42 {there} ['a b']\n", done.stderr


def test_links_into_the_environment_become_relative(venv: Path, tmp_path: Path) -> None:
    (venv / "bin" / "python3.99").symlink_to(venv / "bin" / "python3")
    links = {entry.name: entry.link for entry in inspect_venv(venv).entries if entry.link is not None}
    assert links["bin/python3.99"] == links["bin/python"] == "python3"
    assert links["bin/python3"] == f"{sys.base_prefix}/bin/python3"


@pytest.mark.parametrize(
    ("settings", "said"),
    [("include-system-site-packages = true\n", "system's Python"), ("", "mine .* can not be packed: 'pip install -e'")],
)
def test_what_is_outside_of_the_environment_is_refused(settings: str, said: str, tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv", settings=settings)
    install(venv, "mine", {"__editable__.mine.pth": "/src\n"}, direct_url='{"url": "file:///src", "dir_info": {"editable": true}}')
    with pytest.raises(EnvironmentCheckError, match=said) as caught:
        inspect_venv(venv)
    assert caught.value.hint


def test_an_interpreter_outside_of_any_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match="is no virtual environment"):
        inspect_venv(tmp_path)


# -- the cache --------------------------------------------------------------------------------------------------------------


def write(venv: Path, folder: Path, text: str) -> tuple[Path, list[str]]:
    """The archive in the run's folder, and what was told."""
    told: list[str] = []
    run_folder = folder / f"run{len(list(folder.iterdir()))}"
    write_environment(resolve(text, folder), run_folder, {"TFOS_HOME": str(folder / "home")}, prefix=venv, tell=told.append)
    archive = shipped_environment(resolve(text, folder), run_folder)
    assert archive is not None
    return Path(archive), told


def test_the_second_submission_packs_nothing(venv: Path, tmp_path: Path) -> None:
    first, told = write(venv, tmp_path, spec("venv"))
    assert "packing" in told[0]
    before = first.stat()
    second, told = write(venv, tmp_path, spec("venv"))
    assert told == []
    assert second.stat().st_ino == before.st_ino
    (entry,) = (tmp_path / "home" / "cache" / "environments").iterdir()
    assert (entry / "lock.txt").read_text() == "answer==1.0\ntensorflow==1.0\n"


@pytest.mark.parametrize("change", ["content", "new", "removed", "level", "mode"])
def test_any_change_packs_again(change: str, venv: Path, tmp_path: Path) -> None:
    write(venv, tmp_path, spec("venv"))
    answer = site_of(venv) / "answer.py"
    match change:
        case "content":
            answer.write_text("VALUE = 43\n")
        case "new":
            (site_of(venv) / "other.py").write_text("")
        case "removed":
            answer.unlink()
        case "mode":
            answer.chmod(0o755)
    archive, told = write(venv, tmp_path, spec("venv", level=2 if change == "level" else 1))
    assert told
    assert archive.is_file()


def test_byte_code_that_appears_meanwhile_does_not_pack_again(venv: Path, tmp_path: Path) -> None:
    write(venv, tmp_path, spec("venv"))
    (site_of(venv) / "__pycache__").mkdir()
    (site_of(venv) / "__pycache__" / f"answer.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    assert write(venv, tmp_path, spec("venv"))[1] == []


def test_old_archives_go_and_those_of_runs_stay(venv: Path, tmp_path: Path) -> None:
    shipped = []
    for value in range(5):
        (site_of(venv) / "answer.py").write_text(f"VALUE = {value}\n")
        shipped.append(write(venv, tmp_path, spec("venv"))[0])
    assert len(list((tmp_path / "home" / "cache" / "environments").iterdir())) == 3
    assert all("bin/python" in packed_names(archive) for archive in shipped)


def test_a_failure_leaves_no_half_archive(venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", fail)
    with pytest.raises(OSError, match="No space left"):
        write(venv, tmp_path, spec("venv"))
    assert list((tmp_path / "home" / "cache" / "environments").iterdir()) == []


def test_an_archive_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*/missing\.tar\.gz"):
        write_environment(resolve(spec("missing.tar.gz"), tmp_path), tmp_path / "run", {"TFOS_HOME": str(tmp_path / "home")})


# -- conda ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    folder = tmp_path / "conda"
    (folder / "conda-meta").mkdir(parents=True)
    (folder / "conda-meta" / "python-3.11.9-0.json").write_text("{}")
    return folder


def test_a_conda_environment_is_packed_by_conda_pack_once(conda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def pack(**arguments: Any) -> None:
        calls.append(arguments)
        Path(arguments["output"]).write_bytes(b"packed")

    module = ModuleType("conda_pack")
    module.__dict__.update(pack=pack, CondaPackException=RuntimeError)
    monkeypatch.setitem(sys.modules, "conda_pack", module)
    archive, told = write(conda, tmp_path, spec("conda", level=3))
    assert archive.read_bytes() == b"packed"
    assert "packing the conda environment" in told[0]
    assert (calls[0]["prefix"], calls[0]["compress_level"]) == (str(conda), 3)
    assert ("exclude", "*/site-packages/pyspark/*") in calls[0]["filters"]
    assert write(conda, tmp_path, spec("conda", level=3))[1] == []
    (conda / "conda-meta" / "numpy-2.0-0.json").write_text("{}")
    write(conda, tmp_path, spec("conda", level=3))
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # the cache of packages that conda-pack misses
def test_conda_pack_itself_makes_an_archive_that_runs_where_spark_unpacks_it(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "conda")
    script = f"#!{folder}/bin/python\nimport sys, answer\nprint(answer.VALUE, sys.prefix, sys.argv[1:])\n"
    install(folder, "answer", {"answer.py": "VALUE = 42\n", "../../../bin/tell": script})
    (folder / "bin" / "tell").chmod(0o755)
    install(folder, "pyspark", {"pyspark/__init__.py": ""})
    install(folder, "tfos", {"tfos_core/__init__.py": ""}, direct_url='{"dir_info": {"editable": true}, "url": "file:///src"}')
    archive = write(folder, tmp_path, spec("conda"))[0]
    names = packed_names(archive)
    # Its files are at the top, as `--archives FILE#environment` and `./environment/bin/python` need them.
    assert {"bin/python", "bin/conda-unpack", "conda-meta/history"} <= names
    assert not [name for name in names if "pyspark" in name or name.startswith("include/") or "tfos-1.0" in name]
    unpacked = tmp_path / "executor" / "environment"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="tar")
    environment = {"PATH": f"{unpacked}/bin:/usr/bin:/bin"}
    for line in ([PYTHON, "-c", "import sys, answer; print(answer.VALUE, sys.prefix)"], [f"{unpacked}/bin/tell"]):
        done = subprocess.run(line, cwd=unpacked.parent, env=environment, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.split()[:2] == ["42", str(unpacked)], done.stdout


def test_what_conda_pack_refuses_is_told(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "conda")
    (folder / "bin" / "python").unlink()
    with pytest.raises(EnvironmentCheckError, match=r"conda-pack can not pack .*/conda: .*bin/python"):
        PackCache(folder=tmp_path / "cache").conda(folder, 1)
    assert list((tmp_path / "cache").iterdir()) == []


def test_packages_of_conda_that_are_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "conda")
    install(folder, "mine", {"mine.py": ""}, direct_url='{"dir_info": {"editable": true}, "url": "file:///src"}')
    with pytest.raises(EnvironmentCheckError, match=r"mine in .* can not be packed"):
        PackCache(folder=tmp_path / "cache").conda(folder, 1)


def test_a_missing_conda_pack_says_what_to_install(conda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "conda_pack", None)
    with pytest.raises(EnvironmentCheckError, match="has no conda-pack") as caught:
        PackCache(folder=tmp_path / "cache").conda(conda, 1)
    assert "conda install -c conda-forge conda-pack" in str(caught.value.hint)


def test_an_environment_that_is_not_condas_is_refused(venv: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCheckError, match="is no conda environment"):
        PackCache(folder=tmp_path / "cache").conda(venv, 1)
