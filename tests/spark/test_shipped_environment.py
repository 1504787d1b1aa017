"""A Standalone cluster whose own Python has nothing: the environment travels with the job, and secrets stay secret."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.environments import install, make_venv, site_of
from testbed import nodes
from testbed.commandline import TfosProcess
from testbed.processes import list_processes
from testbed.standalone import StandaloneCluster, WorkerOptions
from testbed.waiting import poll_until

from tfos_cli.submit.venv_archive import write_archive
from tfos_cli.submit.venv_files import inspect_venv

if TYPE_CHECKING:
    from tests.conftest import RunLine

APP = """
import hashlib
import os
import sys
import time
from pathlib import Path


def rows(spark, args):
    return spark.sparkContext.parallelize(range(40), 4)


def main_fun(args, ctx):
    import numpy
    import only_in_the_pack
    from testbed.nodes import note

    secret = os.environ["TESTS_PASSWORD"]
    if args.fails:
        raise ValueError(f"the database refused {secret}")
    feed, total = ctx.get_data_feed(), 0
    while not feed.should_stop():
        total += int(numpy.sum(feed.next_batch(10)))
    note(
        vars(args), ctx, total=total, python=sys.executable, numpy=numpy.__file__, answer=only_in_the_pack.ANSWER,
        greeting=os.environ["GREETING"], digest=hashlib.sha256(secret.encode()).hexdigest(), modules=sys.path,
    )
    until = time.monotonic() + 90
    while not Path(args.folder, "go").exists() and time.monotonic() < until:
        time.sleep(0.05)
"""
SPEC = """
name: shipped
entrypoint: app.py:main_fun
args: {fails: false, folder: notes}
num_executors: 2
master_node: null
data: {source: "app.py:rows"}
environment: {pack: env.tar.gz, vars: {GREETING: hello there}, secrets: [TESTS_PASSWORD]}
spark: {executor_memory: 512m}
"""
SECRET = "correct-horse-battery-staple"

Start = Callable[..., TfosProcess]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with its standard library and nothing else."""
    python = make_venv(tmp_path_factory.mktemp("bare") / "venv") / "bin" / "python"
    for module in ("numpy", "tensorflow", "tfos_core", "pyspark"):
        probe = subprocess.run([python, "-Ic", f"import {module}"], env={}, capture_output=True, timeout=30, check=False)
        assert b"No module named" in probe.stderr
    return python


@pytest.fixture(scope="module")
def cluster(bare: Path) -> Iterator[StandaloneCluster]:
    """Two Workers with that Python."""
    environment = {"PATH": f"{bare.parent}:{os.environ['PATH']}", "PYSPARK_PYTHON": str(bare)}
    with StandaloneCluster([WorkerOptions(environment=environment)] * 2) as started:
        yield started


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with NumPy and a module of its own; TensorFlow's is for the slow tier."""
    folder = tmp_path_factory.mktemp("pack")
    venv = make_venv(folder / "venv")
    install(venv, "only-in-the-pack", {"only_in_the_pack.py": "ANSWER = 42\n"})
    ours = site_of(Path(sys.prefix))
    for path in (*ours.glob("numpy"), *ours.glob("numpy.libs")):
        subprocess.run(["cp", "-r", path, site_of(venv)], check=True, timeout=60)
    write_archive(inspect_venv(venv), folder / "env.tar.gz", level=1)
    return folder / "env.tar.gz"


@pytest.fixture
def job(tmp_path: Path, archive: Path, cluster: StandaloneCluster, tfos_process: Start) -> Callable[..., TfosProcess]:
    """Starts the job on the cluster."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "notes").mkdir()
    (tmp_path / "events").mkdir()
    if not (tmp_path / "env.tar.gz").exists():
        os.link(archive, tmp_path / "env.tar.gz")
    conf = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.dir=file://{tmp_path}/events"
    line = f"tfos train job.yaml --json --master {cluster.url} {conf} --set args.folder={tmp_path}/notes"
    return lambda options="": tfos_process(f"{line} {options}", TESTS_PASSWORD=SECRET)


def where_the_secret_is(*folders: Path) -> list[Path]:
    """Files that have it; not those of the unpacked environment, which are many."""
    return [
        Path(place, name)
        for folder in folders
        for place, _, names in os.walk(folder)
        if "/environment/" not in place
        for name in names
        if Path(place, name).is_file() and SECRET.encode() in Path(place, name).read_bytes()
    ]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def test_the_job_runs_in_the_shipped_environment_and_nobody_sees_its_secret(
    job: Callable[..., TfosProcess], cluster: StandaloneCluster, tmp_path: Path, tfos_home: Path, nothing_left: None
) -> None:
    process = job()
    started = process.wait_for_event("driver_started")
    notes = poll_until(lambda: found if len(found := nodes.notes(tmp_path / "notes")) == 2 else {}, 120, what="both nodes' notes")
    # While everything runs: what others on the machine, in Spark's web pages and on its disks can see.
    command_lines = [process_ for process_ in list_processes() if process_.runs(SECRET)]
    executors = [executor for executor in cluster.executors() if SECRET in executor.environment.values()]
    pages = [read(f"{started['web_url']}/{page}") for page in ("environment/", "executors/", "jobs/")]
    pages += [read(f"{started['web_url']}/api/v1/applications/{started['application_id']}/environment"), read(cluster.web_url)]
    found = where_the_secret_is(tfos_home, cluster.folder, tmp_path)
    (tmp_path / "notes" / "go").touch()
    outcome = process.wait(90, exit_code=0)

    said: list[dict[str, Any]] = [entry for entries in notes.values() for entry in entries]
    assert sum(entry["total"] for entry in said) == sum(range(40))
    for entry in said:
        assert Path(entry["python"]).parts[-3:] == ("environment", "bin", "python")
        assert Path(entry["python"]).is_relative_to(cluster.folder)
        assert Path(entry["numpy"]).is_relative_to(cluster.folder)
        assert not [path for path in entry["modules"] if path.startswith(sys.prefix) and "/pyspark/" not in path]
        assert (entry["answer"], entry["greeting"]) == (42, "hello there")
        assert entry["digest"] == hashlib.sha256(SECRET.encode()).hexdigest()
    assert command_lines == []
    assert executors == []
    assert "hello there" in "".join(pages)  # so these pages would show it
    assert [page for page in pages if SECRET in page] == []
    assert SECRET not in outcome.stdout + outcome.stderr
    assert found == where_the_secret_is(tfos_home, cluster.folder, tmp_path) == []
    assert list((tmp_path / "events").iterdir())


@pytest.mark.slow
def test_an_error_does_not_tell_the_secret(
    job: Callable[..., TfosProcess], cluster: StandaloneCluster, tmp_path: Path, tfos_home: Path, nothing_left: None
) -> None:
    outcome = job("--set args.fails=true").wait(120, exit_code=1)
    assert "the database refused [secret]" in outcome.stdout
    assert SECRET not in outcome.stdout + outcome.stderr
    assert where_the_secret_is(tfos_home, tmp_path) == []


@pytest.mark.slow
def test_executors_without_the_base_python_end_the_run_with_code_3(
    job: Callable[..., TfosProcess], tmp_path: Path, nothing_left: None
) -> None:
    (tmp_path / "env.tar.gz").unlink()
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as packed:
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "/usr/lib/no-such-python/bin/python3"
        packed.addfile(link)
    result = job().wait(120, exit_code=3).events[-1]
    assert "./environment/bin/python" in result["error"]
    assert "same place" in result["hint"]


def test_a_dry_run_shows_names_of_secrets_only(run_line: RunLine, tmp_path: Path, archive: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TESTS_PASSWORD", SECRET)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "job.yaml").write_text(SPEC)
    os.link(archive, tmp_path / "env.tar.gz")
    outcome = run_line("tfos train job.yaml --master spark://h:7077 --dry-run")
    assert "TESTS_PASSWORD" in outcome.stdout
    assert SECRET not in outcome.stdout + outcome.stderr
