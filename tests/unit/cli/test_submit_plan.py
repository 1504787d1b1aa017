"""The plan that the shim gets, the preparation of a run, and the dry run."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from fakes.submissions import SPECS, resolve

from tfos_cli.submit.command import HIDDEN
from tfos_cli.submit.dry_run import DryRun
from tfos_cli.submit.plan import build_plan
from tfos_cli.submit.preparation import prepare
from tfos_cli.submit.resolved_text import resolved_yaml
from tfos_cli.submit.spark_home import SparkHome
from tfos_core.errors import ConfigError, EnvironmentCheckError
from tfos_core.feed.keeping import NodeCache
from tfos_core.jobplan import FunctionRef, JobPlan

RUN = Path("/home/me/.tfos/runs/r1")
BASE = "name: digits\nentrypoint: apps/digits.py:main_fun\nnum_executors: 3\n"
SPARK = SparkHome(path=Path("/opt/spark"), version="4.3.0", source="SPARK_HOME")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "digits.py").write_text("")
    return tmp_path


def plan_of(text: str, folder: Path) -> JobPlan:
    return build_plan(resolve(text, folder, shown_folder=Path("/job")), run_id="r1", run_folder=RUN, channel=RUN / "channel.json")


def dry_run_of(text: str, folder: Path) -> DryRun:
    return DryRun.of(resolve(text, folder), run_id="r1", run_folder=RUN, spark=SPARK, python="/opt/venv/bin/python")


def test_a_plan_says_what_the_spec_says_and_survives_json(tmp_path: Path) -> None:
    text = (
        BASE
        + """\
num_ps: 1
input_mode: tensorflow
driver_ps_nodes: true
feed_timeout: 30
num_epochs: 2
args: [--rate, 0.5]
data: {path: data/train.csv.gz, options: {header: true}, columns: [a, b], transform: prep.py:prepare}
environment: {vars: {K: v}, secrets: [DB_PASSWORD]}
"""
    )
    plan = plan_of(text, tmp_path)
    assert plan.entrypoint == FunctionRef(module="digits", function="main_fun", shown="apps/digits.py:main_fun")
    assert (plan.num_nodes, plan.num_ps, plan.driver_ps_nodes) == (4, 1, True)
    assert plan.args == ("--rate", "0.5")
    assert (plan.feed_timeout, plan.num_epochs, plan.keras) == (30, 2, "legacy")
    assert plan.data is not None
    assert (plan.data.path, plan.data.format) == ("/job/data/train.csv.gz", "csv")
    assert plan.data.columns == ("a", "b")
    assert plan.data.transform == FunctionRef(module="prep", function="prepare", shown="prep.py:prepare")
    assert (plan.environment, plan.secrets) == ({"K": "v"}, ("DB_PASSWORD",))
    assert plan.log_dir == f"{RUN}/tensorboard"
    assert JobPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("master", "path", "expected"),
    [
        ("spark://h:7077", "data/x.csv", "/job/data/x.csv"),
        ("yarn", "data/x.csv", "file:///job/data/x.csv"),
        ("yarn", "/data/x.csv", "/data/x.csv"),
        ("yarn", "hdfs:///data/x.csv", "hdfs:///data/x.csv"),
        ("k8s://https://h", "s3a://bucket/x.csv", "s3a://bucket/x.csv"),
    ],
)
def test_a_relative_path_is_below_the_spec_and_local_on_every_cluster(
    master: str, path: str, expected: str, tmp_path: Path
) -> None:
    plan = plan_of(BASE + f"data: {{path: '{path}'}}\nspark: {{master: '{master}'}}\n", tmp_path)
    assert plan.data is not None
    assert plan.data.path == expected


def test_what_nodes_keep_is_in_the_plan(tmp_path: Path) -> None:
    def kept(more: str) -> NodeCache | None:
        plan = plan_of(BASE + f"data: {{path: x.csv{more}}}\n", tmp_path)
        assert plan.data is not None
        return plan.data.node_cache

    assert kept("") is None
    assert kept(", cache: node") == NodeCache()
    assert kept(", cache: node, cache_memory: 1g, cache_disk: null, cache_shuffle: true, cache_seed: 7") == NodeCache(
        memory_bytes=1 << 30, disk_bytes=0, shuffle=True, seed=7
    )
    (example,) = re.findall(
        r"```yaml\n(num_epochs.*?)```", (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8"), re.DOTALL
    )
    documented = plan_of(BASE + example, tmp_path).data
    assert documented is not None
    assert documented.node_cache == NodeCache(memory_bytes=1 << 30, disk_bytes=20 << 30, shuffle=True)


def test_the_progress_of_a_stream_is_in_the_run_record_unless_the_spec_names_a_place(tmp_path: Path) -> None:
    spec = BASE + "stream: {source: files, path: in, format: csv, options: {schema: 'x float'}, max_files: 2, interval: 3%s}\n"
    plan = plan_of(spec % "", tmp_path)
    assert plan.stream is not None
    assert plan.stream.path == "/job/in"
    assert (plan.stream.options, plan.stream.max_files, plan.stream.interval) == ({"schema": "x float"}, 2, 3)
    assert plan.stream.checkpoint == f"file://{plan.run_folder}/checkpoint"
    named = plan_of(spec % ", checkpoint: 'hdfs://nn/c'", tmp_path).stream
    assert named is not None
    assert named.checkpoint == "hdfs://nn/c"


def test_data_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the format of data.path 'data/train' can not be told"):
        plan_of(BASE + "data: {path: data/train}\n", tmp_path)


def test_the_resolved_spec_is_yaml_that_says_where_each_value_came_from(tmp_path: Path) -> None:
    resolved = resolve(BASE + "args: {note: 'a: b # c', max_tokens: 5}\ndata: {path: x.csv, columns: [a, b]}\n", tmp_path)
    text = resolved_yaml(resolved)
    assert yaml.safe_load(text) == resolved.spec.to_dict()
    assert re.search(r"^num_executors: 3 +# file:3$", text, re.MULTILINE)
    assert re.search(r"^num_epochs: 1 +# default$", text, re.MULTILINE)
    assert re.search(r"^  columns: \[a, b\] +# file:5$", text, re.MULTILINE)


def test_the_resolved_spec_hides_what_looks_like_a_secret(tmp_path: Path) -> None:
    resolved = resolve(BASE + "environment: {vars: {API_TOKEN: abcdef}, secrets: [DB_PASSWORD]}\n", tmp_path)
    visible = yaml.safe_load(resolved_yaml(resolved))
    assert visible["environment"]["vars"]["API_TOKEN"] == HIDDEN
    assert visible["environment"]["secrets"] == ["DB_PASSWORD"]


@pytest.mark.parametrize("kind", SPECS)
def test_a_dry_run_shows_the_command_the_spec_and_writes_nothing(kind: str, job: Path) -> None:
    text = SPECS[kind]
    dry_run = dry_run_of(text, job)
    files = sorted(job.rglob("*"))
    shown = dry_run.text()
    assert dry_run.command.render() in shown
    assert "# nodes:     3 (1 chief, 2 workers)" in shown
    assert "# keras:     legacy (auto: more than one node" in shown
    assert "nothing was started or written" in shown
    assert "abcdef" not in shown
    assert ("# driver:    on the cluster" in shown) == kind.endswith("-cluster")
    resolved = yaml.safe_load(shown.split("# resolved spec\n")[1])
    assert resolved["name"] == "digits"
    assert sorted(job.rglob("*")) == files


def test_a_dry_run_as_json_has_the_same(job: Path) -> None:
    shown = json.loads(json.dumps(dry_run_of(SPECS["yarn-cluster"], job).to_dict()))
    assert shown["command"]["argv"][0] == "/opt/spark/bin/spark-submit"
    assert [node["name"] for node in shown["nodes"]] == ["chief:0", "worker:0", "worker:1"]
    assert shown["memory_overhead"]["value"] == "2048m"
    assert shown["provenance"]["name"] == "file:1"
    assert shown["record"].endswith("/.tfos/runs/r1")
    assert "abcdef" not in json.dumps(shown)


@pytest.mark.parametrize(("kind", "heeds_signals"), [("yarn-cluster", False), ("kubernetes-cluster", True)])
def test_the_plan_of_a_driver_on_the_cluster_says_how_it_is_heard(job: Path, kind: str, heeds_signals: bool) -> None:
    plan = dry_run_of(SPECS[kind], job).plan
    assert plan.remote is not None
    assert plan.remote.record.endswith("/.tfos/runs/r1")
    assert plan.remote.heeds_signals is heeds_signals
    assert JobPlan.from_json(plan.to_json()) == plan
    assert dry_run_of(SPECS["yarn-client"], job).plan.remote is None


def test_the_checkpoint_of_a_stream_is_where_the_next_driver_finds_it(job: Path) -> None:
    stream = BASE + "stream: {source: files, path: 'hdfs://nn/in', format: text}\n"
    for spark, place in (
        ("spark: {master: yarn}\n", f"file://{RUN}/checkpoint"),
        (
            "spark: {master: yarn, deploy_mode: cluster, conf: {spark.yarn.stagingDir: 'hdfs://nn/s'}}\n",
            "hdfs://nn/s/.tfos/runs/r1/checkpoint",
        ),
    ):
        plan = dry_run_of(stream + spark, job).plan
        assert plan.stream is not None
        assert plan.stream.checkpoint == place


def test_nodes_on_the_driver_are_counted_apart(job: Path) -> None:
    text = BASE + "input_mode: tensorflow\nnum_ps: 2\ndriver_ps_nodes: true\n"
    shown = dry_run_of(text, job).text()
    assert "# nodes:     5 (2 ps, 1 chief, 2 workers), 2 of them on the driver" in shown
    assert "# executors: 3 on this machine" in shown


def test_a_dry_run_refuses_what_a_run_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        dry_run_of(BASE, tmp_path)


@pytest.mark.parametrize(
    ("conf_dir", "said"), [(None, "HADOOP_CONF_DIR is not set"), ("", "HADOOP_CONF_DIR is not set"), ("{job}", "has neither")]
)
def test_yarn_without_settings_of_hadoop_is_refused_before_anything_is_written(job: Path, conf_dir: str | None, said: str) -> None:
    run_folder = job / "run"
    environ = {name: value for name, value in os.environ.items() if name not in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}
    if conf_dir is not None:
        environ["HADOOP_CONF_DIR"] = conf_dir.format(job=job)
    for kind in ("yarn-client", "yarn-cluster"):
        with pytest.raises(EnvironmentCheckError, match=said):
            prepare(
                resolve(SPECS[kind], job),
                run_id="r1",
                run_folder=run_folder,
                plan_path=run_folder / "plan.json",
                channel=None,
                environ=environ,
            )
    assert not run_folder.exists()


def test_a_preparation_leaves_no_scratch_and_no_secret_behind(job: Path, tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    run_folder = job / "run"
    run_folder.mkdir()
    with prepare(
        resolve(SPECS["embedded"], job),
        run_id="r1",
        run_folder=run_folder,
        plan_path=run_folder / "plan.json",
        channel=None,
        environ={"JAVA_HOME": str(tmp_path / "jdk")},
    ) as prepared:
        assert (prepared.scratch.home / "bin" / "spark-submit").is_file()
        assert prepared.scratch.temporary.is_dir()
        assert prepared.command.argv[0] == str(prepared.scratch.home / "bin" / "spark-submit")
        assert prepared.command.environment["PYSPARK_PYTHON"] == sys.executable
        assert "abcdef" in (run_folder / "spark-secrets.conf").read_text()
        assert JobPlan.from_json((run_folder / "plan.json").read_text()) == prepared.plan
        assert (run_folder / "plan.json").stat().st_mode & 0o777 == 0o600
        assert "abcdef" not in shlex.join(prepared.command.argv)
    assert not prepared.scratch.folder.exists()
    assert not (run_folder / "spark-secrets.conf").exists()
    prepared.clean()
