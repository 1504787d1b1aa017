"""Each offline rule: it finds what it is for, says where that was set and what to do, and is silent otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfos_cli.spec.checks import storage
from tfos_cli.spec.loader import load_spec
from tfos_cli.spec.rules import Finding, Level, check

APP = """\
import functools
from json import dumps as imported
def main_fun(args, ctx): ...
def prepare(spark, df, args): ...
def load(spark, args): ...
def flexible(*anything, **more): ...
def with_default(args, ctx, extra=1): ...
def one(args): ...
def three(args, ctx, more): ...
def keyword(args, ctx, *, needed): ...
@functools.wraps(one)
def decorated(x): ...
async def waiting(args, ctx): ...
class Callable: ...
partial = functools.partial(three, more=1)
try:
    import numpy
    def conditional(args, ctx): ...
except ImportError:
    fallback = None
"""

STREAM = {"source": "files", "path": "apps"}
VERSIONS = {"tensorflow": "2.21.0", "tf_keras": "2.21.1"}

Check = Callable[..., dict[str, Finding]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an app and data."""
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "digits.py").write_text(APP)
    (tmp_path / "train.csv").write_text("a\n1\n")
    return tmp_path


@pytest.fixture
def findings(folder: Path) -> Check:
    """Checks a spec with these changes to a good one; findings by id (of one id, the last)."""

    def run(
        changes: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        versions: Mapping[str, str] = VERSIONS,
        platform: str = "linux",
    ) -> dict[str, Finding]:
        good = {"name": "digits", "entrypoint": "apps/digits.py:main_fun", "num_executors": 2, "data": {"path": "train.csv"}}
        text = yaml.safe_dump(good | dict(changes or {}), sort_keys=False)
        (folder / "job.yaml").write_text(text)
        environ = {"TFOS_HOME": str(folder / "home")} | dict(environ or {})
        resolved = load_spec(folder / "job.yaml", environ=environ, version_of=versions.get)
        found = check(resolved, environ=environ, platform=platform, search_path=(str(folder / "site"),))
        for finding in found:
            assert finding.message
            assert finding.fix
            assert finding.source
        return {finding.id: finding for finding in found}

    return run


def test_a_good_spec_has_no_findings(findings: Check) -> None:
    assert findings() == {}


@pytest.mark.parametrize(
    ("changes", "rule", "level", "field"),
    [
        ({"num_ps": 2, "master_node": None}, "roles-add-up", "error", "num_executors"),
        ({"num_ps": 2}, "roles-add-up", "error", "num_executors"),
        ({"eval_node": True}, "needs-tensorflow-mode", "error", "eval_node"),
        ({"num_ps": 1, "driver_ps_nodes": True}, "needs-tensorflow-mode", "error", "driver_ps_nodes"),
        ({"driver_ps_nodes": True, "input_mode": "tensorflow"}, "driver-ps-without-ps", "warning", "driver_ps_nodes"),
        ({"num_ps": 1}, "ps-in-spark-mode", "warning", "num_ps"),
        ({"master_node": "master"}, "master-role", "warning", "master_node"),
        ({"spark": {"master": "local[2]"}}, "local-master", "error", "spark.master"),
        ({"spark": {"master": "local"}}, "local-master", "error", "spark.master"),
        ({"spark": {"master": "local[*]"}}, "local-master", "error", "spark.master"),
        ({"spark": {"master": "mesos://h"}}, "unknown-master", "error", "spark.master"),
        ({"spark": {"master": "spark://host"}}, "unknown-master", "error", "spark.master"),
        ({"spark": {"master": "spark://a:1,b"}}, "unknown-master", "error", "spark.master"),
        ({"spark": {"deploy_mode": "cluster"}}, "deploy-mode", "error", "spark.deploy_mode"),
        ({"spark": {"deploy_mode": "cluster", "master": "spark://h:1"}}, "deploy-mode", "error", "spark.deploy_mode"),
        (
            {"spark": {"deploy_mode": "cluster", "master": "yarn", "conf": {"spark.yarn.maxAppAttempts": "2"}}},
            "second-attempt",
            "error",
            "spark.conf.spark.yarn.maxAppAttempts",
        ),
        ({"spark": {"queue": "ml"}}, "queue-ignored", "warning", "spark.queue"),
        ({"spark": {"master": "local-cluster[1,1,1024]"}}, "local-cluster-size", "error", "spark.master"),
        ({"spark": {"master": "local-cluster[2,1,1024]", "executor_cores": 2}}, "local-cluster-size", "error", "spark.master"),
        ({"spark": {"master": "local-cluster[2,1,1024]", "executor_memory": "2g"}}, "local-cluster-size", "error", "spark.master"),
        ({"spark": {"executor_memory": "256m"}}, "memory-too-small", "error", "spark.executor_memory"),
        ({"spark": {"driver_memory": "449m"}}, "memory-too-small", "error", "spark.driver_memory"),
        (
            {"spark": {"master": "yarn", "executor_memory_overhead": "512m"}},
            "overhead-too-small",
            "warning",
            "spark.executor_memory_overhead",
        ),
        ({"entrypoint": "digits"}, "function-reference", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py"}, "function-reference", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.txt:f"}, "function-reference", "error", "entrypoint"),
        ({"entrypoint": "apps/digit.py:main_fun"}, "function-file", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py:main_fn"}, "function-missing", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py:one"}, "function-signature", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py:three"}, "function-signature", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py:keyword"}, "function-signature", "error", "entrypoint"),
        ({"entrypoint": "apps/digits.py:waiting"}, "function-signature", "error", "entrypoint"),
        ({"entrypoint": "company.models:train"}, "module-not-here", "warning", "entrypoint"),
        ({"data": {"path": "train.csv", "transform": "apps/digits.py:main_fun"}}, "function-signature", "error", "data.transform"),
        ({"data": {"source": "apps/digits.py:prepare"}}, "function-signature", "error", "data.source"),
        ({"data": None}, "data-required", "error", "data"),
        ({"data": {}}, "data-required", "error", "data"),
        ({"data": {"path": "train.csv", "source": "apps/digits.py:load"}}, "one-source", "error", "data.source"),
        ({"data": {"path": "nothing.csv"}}, "data-missing", "error", "data.path"),
        ({"data": {"path": "file:/nothing.csv"}}, "data-missing", "error", "data.path"),
        ({"data": {"path": "*.parquet"}}, "data-missing", "error", "data.path"),
        ({"data": {"path": " "}}, "data-missing", "error", "data.path"),
        ({"data": {"path": "apps"}}, "format-unknown", "error", "data.format"),
        ({"data": {"path": "hdfs://nn/data"}}, "format-unknown", "error", "data.format"),
        ({"spark": {"master": "spark://h:1"}}, "data-local", "warning", "data.path"),
        ({"input_mode": "tensorflow", "data": {"source": "apps/digits.py:load"}}, "needs-spark-mode", "error", "data.source"),
        ({"input_mode": "tensorflow", "data": None, "equal_steps": True}, "needs-spark-mode", "warning", "equal_steps"),
        (
            {"mode": "parallel", "restart": {"max_restarts": 1}},
            "parallel-has-no-cluster",
            "error",
            "restart.max_restarts",
        ),
        ({"mode": "parallel", "equal_steps": True}, "parallel-has-no-cluster", "error", "equal_steps"),
        (
            {"data": {"path": "train.csv", "columns": ["a"], "input_mapping": {"b": "x"}}},
            "mapped-column",
            "error",
            "data.input_mapping",
        ),
        ({"input_mode": "tensorflow", "stream": {"source": "files", "path": "in"}}, "stream-mode", "error", "stream"),
        ({"data": None, "stream": {"source": "files"}}, "stream-incomplete", "error", "stream.path"),
        ({"data": None, "stream": {"source": "socket", "host": "h"}}, "stream-incomplete", "error", "stream.port"),
        ({"data": None, "stream": {"source": "files", "path": "no"}}, "stream-missing", "error", "stream.path"),
        ({"data": None, "stream": STREAM, "spark": {"master": "spark://h:1"}}, "stream-local", "warning", "stream.path"),
        ({"data": None, "stream": STREAM, "num_epochs": 2}, "stream-epochs", "error", "num_epochs"),
        ({"data": None, "stream": STREAM, "equal_steps": True}, "stream-equal-steps", "error", "equal_steps"),
        ({"data": None, "stream": STREAM, "restart": {"max_restarts": 1}}, "stream-restart", "error", "restart.max_restarts"),
        ({"data": None, "stream": STREAM | {"transform": "apps/digits.py:no"}}, "function-missing", "error", "stream.transform"),
        (
            {"data": None, "stream": {"source": "socket", "host": "h", "port": 1, "checkpoint": "c"}},
            "stream-checkpoint",
            "warning",
            "stream.checkpoint",
        ),
        ({"spark": {"jars": ["no.jar"]}}, "file-missing", "error", "spark.jars"),
        ({"spark": {"archives": ["no.tgz#env"]}}, "file-missing", "error", "spark.archives"),
        ({"environment": {"vars": {"TF_CONFIG": "{}"}}}, "reserved-variable", "error", "environment.vars.TF_CONFIG"),
        ({"environment": {"vars": {"API_TOKEN": "x"}}}, "secret-in-vars", "warning", "environment.vars.API_TOKEN"),
        ({"environment": {"secrets": ["API_TOKEN"]}}, "secret-not-set", "warning", "environment.secrets"),
        ({"environment": {"secrets": ["A"], "vars": {"A": "x"}}}, "secret-twice", "error", "environment.secrets"),
    ],
)
def test_the_rule_finds_what_it_is_for(findings: Check, changes: dict[str, Any], rule: str, level: str, field: str) -> None:
    found = findings(changes)
    assert rule in found, found
    assert (found[rule].level, found[rule].field) == (level, field)


@pytest.mark.parametrize(
    ("conf", "rule", "level"),
    [
        ({"spark.dynamicAllocation.enabled": "true"}, "fixed-executors", "error"),
        ({"spark.speculation": "TRUE"}, "fixed-executors", "error"),
        ({"spark.locality.wait": "3s"}, "locality-wait", "warning"),
        ({"spark.executor.instances": "5"}, "conf-contradicts-spec", "error"),
        ({"spark.master": "yarn"}, "conf-contradicts-spec", "error"),
        ({"spark.submit.deployMode": "cluster"}, "conf-contradicts-spec", "error"),
        ({"spark.app.name": "other"}, "conf-contradicts-spec", "error"),
        ({"spark.task.cpus": "2"}, "task-cpus", "error"),
        ({"spark.cores.max": "1"}, "cores-max", "error"),
        ({"spark.executor.cores": "many"}, "executor-cores", "error"),
        ({"spark.executor.cores": "0"}, "executor-cores", "error"),
        ({"spark.executor.memory": "much"}, "memory-unreadable", "error"),
        ({"spark.executor.memory": "100"}, "memory-too-small", "error"),
        ({"spark.executor.pyspark.memory": "1g"}, "pyspark-memory", "warning"),
        ({"spark.executor.resource.gpu.amount": "1"}, "gpu-unused", "warning"),
        ({"spark.task.resource.gpu.amount": "1"}, "gpu-amount", "error"),
    ],
)
def test_the_rule_finds_the_spark_property(findings: Check, conf: dict[str, str], rule: str, level: str) -> None:
    found = findings({"spark": {"conf": conf}})
    assert rule in found, found
    (key,) = conf
    assert (found[rule].level, found[rule].field) == (level, f"spark.conf.{key}")
    assert found[rule].source.rpartition(":")[0].endswith("job.yaml")


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.dynamicAllocation.enabled": "false"},
        {"spark.speculation": "false"},
        {"spark.locality.wait": "0s"},
        {"spark.executor.instances": "2"},
        {"spark.task.cpus": "2", "spark.executor.cores": "2"},
        {"spark.cores.max": "2"},
        {"spark.executor.memory": "1024"},
        {"spark.task.resource.gpu.amount": "0"},
        {"spark.executor.memoryOverhead": "512m"},
        {"spark.anything.else": "nan"},
    ],
)
def test_harmless_properties_have_no_findings(findings: Check, conf: dict[str, str]) -> None:
    assert findings({"spark": {"conf": conf}}) == {}


def test_a_property_that_wins_over_a_key_is_told_only_when_both_are_set(findings: Check) -> None:
    conf = {"spark.executor.memory": "2g"}
    assert findings({"spark": {"conf": conf}}) == {}
    found = findings({"spark": {"executor_memory": "1g", "conf": conf}})
    assert found["conf-overrides-spec"].level is Level.WARNING


def test_the_fix_of_roles_says_how_many_executors_are_enough(findings: Check) -> None:
    finding = findings({"num_ps": 3, "eval_node": True, "input_mode": "tensorflow"})["roles-add-up"]
    assert finding.message == "2 nodes leave no worker beside 3 ps, chief, 1 evaluator"
    assert finding.fix.startswith("Set num_executors to at least 5")
    assert finding.value == "2"
    again = findings({"num_ps": 3, "eval_node": True, "input_mode": "tensorflow", "num_executors": 5})
    assert "roles-add-up" not in again


def test_ps_on_the_driver_take_no_executor(findings: Check) -> None:
    changes = {"num_ps": 3, "driver_ps_nodes": True, "input_mode": "tensorflow", "num_executors": 1}
    assert findings(changes) == {}
    found = findings(changes | {"eval_node": True, "master_node": None})
    assert found["roles-add-up"].fix.startswith("Set num_executors to at least 2")


def test_the_fix_of_a_local_master_is_a_line_to_use(findings: Check) -> None:
    finding = findings({"num_executors": 3, "spark": {"master": "local[4]", "executor_cores": 2, "executor_memory": "2g"}})[
        "local-master"
    ]
    assert "local-cluster[3,2,2048]" in finding.fix
    assert "one node would get every row" in finding.message


@pytest.mark.parametrize(
    "entrypoint",
    ["main_fun", "flexible", "with_default", "decorated", "Callable", "partial", "conditional", "imported", "fallback"],
)
def test_whatever_a_module_binds_is_an_entrypoint(findings: Check, entrypoint: str) -> None:
    assert findings({"entrypoint": f"apps/digits.py:{entrypoint}"}) == {}


def test_a_missing_function_is_answered_with_the_nearest_name(findings: Check) -> None:
    assert findings({"entrypoint": "apps/digits.py:main_fn"})["function-missing"].fix == "Did you mean 'main_fun'?"
    assert "conditional" in findings({"entrypoint": "apps/digits.py:xyz"})["function-missing"].fix


def test_a_missing_file_is_answered_with_the_nearest_name(findings: Check) -> None:
    assert findings({"entrypoint": "apps/digit.py:main_fun"})["function-file"].fix == "Did you mean 'digits.py'?"


def test_a_module_with_a_star_import_may_define_anything(findings: Check, folder: Path) -> None:
    (folder / "apps" / "star.py").write_text("from os.path import *\n")
    assert findings({"entrypoint": "apps/star.py:join"}) == {}


@pytest.mark.parametrize("content", [b"def main_fun(:\n", b"\xff\xfe", b"x = '\0'\n", b"(" * 100_000])
def test_a_file_that_is_not_python_is_told(findings: Check, folder: Path, content: bytes) -> None:
    (folder / "apps" / "broken.py").write_bytes(content)
    finding = findings({"entrypoint": "apps/broken.py:main_fun"})["function-file"]
    assert "is not Python" in finding.message


def test_the_line_of_a_syntax_error_is_told(findings: Check, folder: Path) -> None:
    (folder / "apps" / "broken.py").write_text("x = 1\ndef main_fun(:\n")
    assert "broken.py:2 is not Python" in findings({"entrypoint": "apps/broken.py:main_fun"})["function-file"].message


def test_a_folder_or_a_loop_of_links_is_no_entrypoint(findings: Check, folder: Path) -> None:
    (folder / "apps" / "loop.py").symlink_to("loop.py")
    (folder / "apps" / "folder.py").mkdir()
    for name in ("loop", "folder"):
        assert "can not be read" in findings({"entrypoint": f"apps/{name}.py:main_fun"})["function-file"].message


def test_the_entrypoint_is_not_imported(findings: Check, folder: Path) -> None:
    (folder / "apps" / "effect.py").write_text("open('ran', 'w')\nraise SystemExit\ndef main_fun(args, ctx): ...\n")
    assert findings({"entrypoint": "apps/effect.py:main_fun"}) == {}
    assert not (folder / "ran").exists()


def test_a_module_is_looked_up_without_running_its_package(findings: Check, folder: Path) -> None:
    package = folder / "site" / "company"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "models.py").write_text("def train(args, ctx): ...\n")
    assert findings({"entrypoint": "company.models:train"}) == {}
    assert "function-missing" in findings({"entrypoint": "company.models:trian"})


@pytest.mark.parametrize("path", ["train.csv", "./train.csv", "*.csv", "t{rain,est}.csv", "hdfs://nn/x.parquet", "s3a://b/x.orc"])
def test_data_that_is_there_or_elsewhere_has_no_findings(findings: Check, path: str) -> None:
    assert findings({"data": {"path": path}}) == {}


def test_a_file_url_is_a_path_of_this_machine(findings: Check, folder: Path) -> None:
    assert findings({"data": {"path": f"file://{folder}/train.csv"}}) == {}
    assert "data-missing" in findings({"data": {"path": f"file://{folder}/nothing.csv"}})


def test_an_absolute_path_belongs_to_hdfs_on_yarn(findings: Check) -> None:
    found = findings({"data": {"path": "/user/me/x.parquet"}, "spark": {"master": "yarn", "conf": {"spark.authenticate": "true"}}})
    assert found == {}


@pytest.mark.parametrize(
    ("master", "is_told"),
    [
        ("spark://cluster:7077", True),
        ("spark://10.0.0.1:7077", True),
        ("spark://127.0.0.1:7077", False),
        ("spark://localhost:7077", False),
        ("yarn", True),
        ("k8s://https://h:6443", True),
        ("local-cluster[2,1,1024]", False),
        (None, False),
    ],
)
def test_a_shared_cluster_without_authentication_is_told(findings: Check, master: str | None, is_told: bool) -> None:
    assert ("spark-authenticate" in findings({"spark": {"master": master}})) is is_told
    assert "spark-authenticate" not in findings({"spark": {"master": master, "conf": {"spark.authenticate": "true"}}})


@pytest.mark.parametrize(
    ("spark", "is_told"),
    [
        ({"executor_memory_overhead": "1023m"}, True),
        ({"executor_memory_overhead": "1g"}, False),
        ({}, False),
        ({"conf": {"spark.executor.memoryOverhead": "384"}}, True),
        ({"conf": {"spark.executor.memoryOverhead": "2g"}}, False),
        ({"conf": {"spark.executor.memoryOverheadFactor": "0.1"}}, True),
        ({"executor_memory": "16g", "conf": {"spark.executor.memoryOverheadFactor": "0.5"}}, False),
    ],
)
@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443"])
def test_a_small_overhead_is_told_where_it_kills(findings: Check, spark: dict[str, Any], is_told: bool, master: str) -> None:
    assert ("overhead-too-small" in findings({"spark": spark | {"master": master}})) is is_told
    assert "overhead-too-small" not in findings({"spark": spark})


@pytest.mark.parametrize(("overhead", "is_told"), [("1791m", True), ("1792m", False), (None, False)])
def test_tensorboard_needs_a_larger_overhead(findings: Check, overhead: str | None, is_told: bool) -> None:
    spark = {"master": "yarn", "executor_memory_overhead": overhead}
    assert ("overhead-too-small" in findings({"spark": spark, "tensorboard": {"enabled": True}})) is is_told


@pytest.mark.parametrize("key", ["spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor"])
def test_an_overhead_that_spark_can_not_read_is_told(findings: Check, key: str) -> None:
    assert "memory-unreadable" in findings({"spark": {"master": "yarn", "conf": {key: "much"}}})


def test_two_overheads_are_told(findings: Check) -> None:
    spark = {"master": "yarn", "executor_memory_overhead": "2g", "conf": {"spark.executor.memoryOverhead": "3g"}}
    assert "conf-contradicts-spec" in findings({"spark": spark})


@pytest.mark.parametrize(("amount", "is_told"), [("1", True), ("2", False)])
def test_gpus_of_a_node_come_out_of_those_of_its_executor(findings: Check, amount: str, is_told: bool) -> None:
    spark = {"conf": {"spark.executor.resource.gpu.amount": amount}}
    assert ("gpu-amount" in findings({"gpus": 2, "spark": spark})) is is_told


@pytest.mark.parametrize(("master", "is_told"), [("spark://localhost:7077", False), ("yarn", False), (None, True)])
def test_gpus_of_a_task_come_out_of_what_the_job_asks_for(findings: Check, master: str | None, is_told: bool) -> None:
    spark = {"master": master, "conf": {"spark.task.resource.gpu.amount": "1"}}
    found = findings({"gpus": 2, "spark": spark})
    assert ("gpu-amount" in found) is is_told
    assert ("gpu-limits-feed" in found) is not is_told
    assert "gpu-limits-feed" not in findings({"gpus": 2, "spark": spark, "input_mode": "tensorflow"})


@pytest.mark.parametrize(
    ("source", "master", "is_told"),
    [
        ("nvidia-smi", "k8s://https://h:6443", True),
        ("nvidia-smi", "spark://localhost:7077", False),
        ("nvidia-smi", None, False),
        ("spark", None, True),
        ("spark", "local-cluster[2,1,1024]", True),
        ("spark", "yarn", False),
        ("auto", None, False),
        ("auto", "k8s://https://h:6443", False),
    ],
)
def test_not_everybody_hands_out_gpus_everywhere(findings: Check, source: str, master: str | None, is_told: bool) -> None:
    found = findings({"gpus": {"per_node": 1, "source": source}, "spark": {"master": master}})
    assert ("gpu-source" in found) is is_told
    assert "gpu-source" not in findings({"gpus": {"per_node": 0, "source": source}, "spark": {"master": master}})


def test_gpus_that_spark_reserves_for_nothing_are_told(findings: Check) -> None:
    roles = {"input_mode": "tensorflow", "num_executors": 3, "num_ps": 1, "eval_node": True, "gpus": 1}
    standalone = {"master": "spark://localhost:7077"}
    assert "1 ps and the evaluator use none" in findings(roles | {"spark": standalone})["gpu-idle"].message
    assert "gpu-idle" not in findings(roles)
    assert "gpu-idle" not in findings(roles | {"spark": standalone, "gpus": {"per_node": 1, "source": "nvidia-smi"}})
    by_hand = {"master": "spark://localhost:7077", "conf": {"spark.executor.resource.gpu.amount": "1"}}
    assert "gpu-unused" in findings({"gpus": {"per_node": 1, "source": "nvidia-smi"}, "spark": by_hand})


@pytest.mark.parametrize(
    ("versions", "keras", "is_told"),
    [
        (VERSIONS, "auto", False),
        ({"tensorflow": "2.21.0"}, "auto", True),
        ({"tensorflow": "2.21.0", "tf_keras": "2.20.0"}, "auto", True),
        ({}, "auto", True),
        ({}, "keras3", False),
        ({}, "legacy", False),
    ],
)
def test_falling_back_to_keras_3_on_many_nodes_is_told(
    findings: Check, versions: dict[str, str], keras: str, is_told: bool
) -> None:
    assert ("keras3-on-many-nodes" in findings({"keras": keras}, versions=versions)) is is_told
    assert "keras3-on-many-nodes" not in findings({"keras": keras, "num_executors": 1}, versions=versions)


def test_a_cache_is_for_rows_that_spark_feeds_several_times(findings: Check) -> None:
    cached = {"data": {"path": "train.csv", "format": "tfrecord", "cache": "node"}}
    assert "cache-unused" not in findings(cached | {"num_epochs": 2})
    assert findings(cached)["cache-unused"].level is Level.WARNING
    for changes in ({"input_mode": "tensorflow"}, {"mode": "parallel"}):
        finding = findings(cached | {"num_epochs": 2} | changes)["needs-spark-mode"]
        assert (finding.level, finding.field) == (Level.ERROR, "data.cache")


@pytest.mark.parametrize("mode", ["spark", "tensorflow"])
def test_columns_and_tfrecords_are_fine_in_both_modes(findings: Check, mode: str) -> None:
    data = {"path": "train.csv", "format": "tfrecord", "columns": ["a", "b"], "input_mapping": {"a": "x"}}
    assert findings({"input_mode": mode, "data": data}) == {}


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
def test_windows_is_refused_with_the_reason(findings: Check, platform: str) -> None:
    assert "Unix sockets" in findings(platform=platform)["windows"].message


def test_a_run_folder_below_a_file_is_told(findings: Check, folder: Path) -> None:
    (folder / "file").write_text("")
    finding = findings(environ={"TFOS_HOME": str(folder / "file" / "home")})["run-folder"]
    assert (finding.source, finding.value) == ("environment:TFOS_HOME", str(folder / "file" / "home"))
    assert f"{folder / 'file'} is not a folder" in finding.message


def test_a_run_folder_that_can_not_be_written_is_told(findings: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert "can not be written" in findings()["run-folder"].message


def test_an_unknown_name_of_the_environment_is_told_with_the_nearest(findings: Check) -> None:
    found = findings(environ={"TFOS_HOEM": "s3cr3t"})["unknown-environment"]
    assert found.fix == "Did you mean 'TFOS_HOME'?"
    assert "s3cr3t" not in repr(found)


def test_values_of_variables_are_not_in_findings(findings: Check) -> None:
    found = findings({"environment": {"vars": {"API_TOKEN": "s3cr3t", "TF_CONFIG": "s3cr3t"}}})
    assert len(found) == 2
    assert "s3cr3t" not in repr(found)


def test_secrets_that_are_set_have_no_findings(findings: Check) -> None:
    assert findings({"environment": {"secrets": ["API_TOKEN"]}}, environ={"API_TOKEN": "x"}) == {}


def test_errors_come_before_warnings(folder: Path) -> None:
    text = "name: d\nentrypoint: nothing.py:f\nnum_ps: 1\nnum_executors: 3\ndata: {path: train.csv}\n"
    (folder / "job.yaml").write_text(text)
    levels = [finding.level for finding in check(load_spec(folder / "job.yaml"), environ={"TFOS_HOME": str(folder)})]
    assert levels == [Level.ERROR, Level.WARNING]


def test_a_fed_cluster_with_ps_is_right_for_a_program_that_builds_its_graphs(findings: Check, folder: Path) -> None:
    app = "def main_fun(args, ctx):\n    setter = tf.compat.v1.train.replica_device_setter(cluster=ctx.cluster_spec)\n"
    (folder / "apps" / "async.py").write_text(app)
    assert "ps-in-spark-mode" not in findings({"num_ps": 1, "entrypoint": "apps/async.py:main_fun"})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"input_mode": "tensorflow", "data": {"path": "hdfs://nn/train", "format": "parquet"}}, "data.path"),
        ({"data": {"path": "hdfs://nn/train", "format": "tfrecord"}}, "data.path"),
        ({"tensorboard": {"log_dir": "s3://bucket/logs"}}, "tensorboard.log_dir"),
    ],
)
def test_a_package_that_storage_needs_is_missed(
    findings: Check, changes: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "find_spec", lambda name: None)
    assert findings(changes)["storage-package"].field == field
    assert "storage-package" not in findings({**changes, "environment": {"pack": "conda"}})
    assert "storage-package" not in findings({"data": {"path": "hdfs://nn/train", "format": "parquet"}}), "Spark reads it"
    monkeypatch.setattr(storage, "find_spec", lambda name: object())
    assert "storage-package" not in findings(changes)


@pytest.mark.parametrize("master", ["spark://cluster:7077", "yarn", "spark://127.0.0.1:1", None])
def test_encryption_of_spark_alone_is_told_where_hosts_talk(findings: Check, master: str | None) -> None:
    conf = {"spark.network.crypto.enabled": "true"}
    assert ("clear-text" in findings({"spark": {"master": master, "conf": conf}})) is (master in ("spark://cluster:7077", "yarn"))
    assert "clear-text" not in findings({"spark": {"master": master, "conf": {"spark.authenticate": "true"}}})


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/x", "a/b", "a\\b", "x#y"])
@pytest.mark.parametrize("field", ["files", "archives"])
def test_files_are_not_unpacked_outside_of_the_working_folder(findings: Check, field: str, name: str) -> None:
    assert "unpack-outside" in findings({"spark": {field: [f"train.csv#{name}"]}})
    assert "unpack-outside" not in findings({"spark": {field: ["train.csv#plain.name", "train.csv"]}})


def test_a_password_in_a_url_is_told_and_not_shown(findings: Check) -> None:
    url = "s3a://user:pass-word@bucket/x.csv"
    for changes in ({"data": {"path": url}}, {"spark": {"jars": [url]}}, {"environment": {"vars": {"URL": url}}}, {"args": [url]}):
        found = findings(changes)
        assert "password-in-url" in found
        assert "pass-word" not in str(found)


def test_a_home_that_others_can_write_is_told(findings: Check, folder: Path) -> None:
    home = folder / "home"
    (home / "runs").mkdir(parents=True)
    for path in (home, home / "runs"):
        path.chmod(0o700)
        assert "home-not-private" not in findings({}, environ={"TFOS_HOME": str(home)})
        path.chmod(0o777)
        assert "home-not-private" in findings({}, environ={"TFOS_HOME": str(home)})
        path.chmod(0o700)


IMAGE = {"spark.kubernetes.container.image": "example/spark"}
POD_DRIVER = {"master": "k8s://https://h:6443", "deploy_mode": "cluster"}
UPLOADED = IMAGE | {"spark.kubernetes.file.upload.path": "s3a://bucket/uploads"}


@pytest.mark.parametrize(
    ("mode", "conf", "is_told"),
    [
        ("client", {}, True),
        ("client", IMAGE, False),
        ("client", {"spark.kubernetes.executor.container.image": "x"}, False),
        ("cluster", {"spark.kubernetes.executor.container.image": "x"}, True),
        ("cluster", UPLOADED, False),
    ],
)
def test_pods_without_an_image_are_told(findings: Check, mode: str, conf: dict[str, str], is_told: bool) -> None:
    found = findings({"spark": POD_DRIVER | {"deploy_mode": mode, "conf": conf}})
    assert ("image-missing" in found) is is_told
    assert "image-missing" not in findings({"spark": {"master": "yarn"}})


def test_an_image_may_be_in_the_defaults_of_spark(findings: Check, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.kubernetes.container.image   site/spark:1 \n")
    spark = {"master": "k8s://https://h:6443"}
    assert "image-missing" not in findings({"spark": spark}, environ={"SPARK_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("path", "level"),
    [(None, Level.ERROR), ("file:///shared", Level.WARNING), ("s3a://bucket/x", None), ("/uploads", None)],
)
def test_files_have_to_reach_the_pod_of_the_driver(findings: Check, path: str | None, level: Level | None) -> None:
    conf = IMAGE | ({"spark.kubernetes.file.upload.path": path} if path else {})
    found = findings({"spark": POD_DRIVER | {"conf": conf}})
    assert (found["upload-path"].level if "upload-path" in found else None) is level
    assert "upload-path" not in findings({"spark": {"master": "k8s://https://h:6443", "conf": conf}})


def test_a_secret_of_a_driver_in_a_pod_is_a_secret_of_kubernetes(findings: Check) -> None:
    changes = {"environment": {"secrets": ["DB_PASSWORD"]}, "spark": POD_DRIVER | {"conf": UPLOADED}}
    assert "secret-in-a-pod" in findings(changes, environ={"DB_PASSWORD": "x"})
    named = UPLOADED | {"spark.kubernetes.driver.secretKeyRef.DB_PASSWORD": "db:password"}
    found = findings(changes | {"spark": POD_DRIVER | {"conf": named}})
    assert not {"secret-in-a-pod", "secret-not-set", "secret-in-config-map"} & set(found)


@pytest.mark.parametrize(
    ("key", "is_told"),
    [
        ("spark.authenticate.secret", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.authenticate.secret.driver.file", False),
        ("spark.kubernetes.driver.secrets.db", False),
        ("spark.hadoop.hadoop.security.credential.provider.path", False),
    ],
)
def test_a_secret_property_would_be_in_a_config_map(findings: Check, key: str, is_told: bool) -> None:
    found = findings({"spark": POD_DRIVER | {"conf": UPLOADED | {key: "/x"}}})
    assert ("secret-in-config-map" in found) is is_told


def test_pods_have_to_reach_a_driver_that_is_in_none(findings: Check) -> None:
    spark = {"master": "k8s://https://h:6443", "conf": IMAGE}
    assert "driver-outside" in findings({"spark": spark})
    assert "driver-outside" not in findings({"spark": spark}, environ={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert "driver-outside" not in findings({"spark": spark | {"conf": IMAGE | {"spark.driver.host": "10.0.0.7"}}})
