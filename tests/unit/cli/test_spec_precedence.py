"""Default < file < environment < flag, and where each value came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tfos_cli.spec.errors import SpecError
from tfos_cli.spec.loader import ResolvedSpec, load_spec

SPEC = """\
name: digits
entrypoint: apps/digits.py:main_fun
num_executors: 2
gpus: 1
args: {batch_size: 64, lr: 1e-3}
spark:
  executor_cores: 2
  conf:
    spark.a.b: 1.50
    spark.c: false
  jars: [a.jar, b.jar]
"""


def resolve(folder: Path, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None, **flags: Any) -> ResolvedSpec:
    file = folder / "job.yaml"
    file.write_text(SPEC)
    return load_spec(file, overrides, environ, **flags)


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    environ = {"TFOS_SET_NUM_EXECUTORS": "3", "TFOS_SET_SPARK__EXECUTOR_CORES": "3"}
    resolved = resolve(tmp_path, ["num_executors=4"], environ)
    assert (resolved.spec.num_executors, resolved.provenance["num_executors"]) == (4, "flag")
    assert resolved.spec.spark.executor_cores == 3
    assert resolved.provenance["spark.executor_cores"] == "environment:TFOS_SET_SPARK__EXECUTOR_CORES"
    assert (resolved.spec.name, resolved.provenance["name"]) == ("digits", "file:1")
    assert (resolved.spec.num_ps, resolved.provenance["num_ps"]) == (0, "default")


def test_every_leaf_has_a_source(tmp_path: Path) -> None:
    provenance = resolve(tmp_path).provenance
    told = {key: source for key, source in provenance.items() if source != "default"}
    assert told == {
        "name": "file:1",
        "entrypoint": "file:2",
        "num_executors": "file:3",
        "gpus.per_node": "file:4",
        "args.batch_size": "file:5",
        "args.lr": "file:5",
        "spark.executor_cores": "file:7",
        "spark.conf.spark.a.b": "file:9",
        "spark.conf.spark.c": "file:10",
        "spark.jars": "file:11",
    }
    assert provenance["gpus.source"] == provenance["environment.vars"] == provenance["data"] == "default"


def test_free_keys_keep_their_dots_and_their_text(tmp_path: Path) -> None:
    overrides = ["spark.conf.spark.x.y=1e3", "environment.vars.A.B=x", "data.options.a.b=[1", "environment.vars.EMPTY="]
    with pytest.raises(SpecError, match=r"environment\.vars has the name 'A\.B'"):
        resolve(tmp_path, overrides)
    spec = resolve(tmp_path, [overrides[0], *overrides[2:]]).spec
    assert spec.spark.conf == {"spark.a.b": "1.50", "spark.c": "false", "spark.x.y": "1e3"}
    assert spec.environment.vars == {"EMPTY": ""}
    assert spec.data is not None
    assert spec.data.options == {"a.b": "[1"}


def test_the_value_of_set_is_yaml(tmp_path: Path) -> None:
    resolved = resolve(tmp_path, ["spark.jars=[c.jar]", "master_node=null", "args.lr=2e-3", "args.new={a: [1]}", "spark.queue=a=b"])
    assert resolved.spec.spark.jars == ("c.jar",)
    assert resolved.spec.master_node is None
    assert resolved.spec.args == {"batch_size": 64, "lr": 0.002, "new": {"a": [1]}}
    assert resolved.spec.spark.queue == "a=b"
    assert resolved.provenance["args.new.a"] == "flag"
    assert resolved.provenance["args.batch_size"] == "file:5"


def test_a_whole_section_is_replaced(tmp_path: Path) -> None:
    resolved = resolve(tmp_path, ["args={x: 1}"])
    assert resolved.spec.args == {"x": 1}
    assert [key for key in resolved.provenance if key.startswith("args")] == ["args.x"]


def test_a_shorthand_of_the_file_can_be_refined(tmp_path: Path) -> None:
    resolved = resolve(tmp_path, ["gpus.source=spark", "tensorboard=true", "tensorboard.port=6006"])
    assert (resolved.spec.gpus.per_node, resolved.spec.gpus.source) == (1, "spark")
    assert (resolved.provenance["gpus.per_node"], resolved.provenance["gpus.source"]) == ("file:4", "flag")
    assert (resolved.spec.tensorboard.enabled, resolved.spec.tensorboard.port) == (True, 6006)


def test_later_flags_win_and_set_wins_over_the_short_ones(tmp_path: Path) -> None:
    resolved = resolve(
        tmp_path,
        ["num_ps=1", "num_ps=0", "spark.conf.a=set"],
        conf=["a=b=c", "spark.d=1"],
        env_vars=[("X", "1"), "Y=2"],
        master="spark://h:7077",
    )
    assert resolved.spec.num_ps == 0
    assert (resolved.spec.spark.conf["a"], resolved.spec.spark.conf["spark.d"]) == ("set", "1")
    assert resolved.spec.environment.vars == {"X": "1", "Y": "2"}
    assert (resolved.spec.spark.master, resolved.provenance["spark.master"]) == ("spark://h:7077", "flag")


@pytest.mark.parametrize(
    ("name", "value", "key", "wanted"),
    [
        ("TFOS_SET_ARGS__BATCH_SIZE", "32", "args.batch_size", 32),
        ("TFOS_SET_ARGS__batchSize", "32", "args.batchSize", 32),
        ("TFOS_SET_SPARK__CONF__spark__ui__retainedJobs", "5", "spark.conf.spark.ui.retainedJobs", "5"),
        ("TFOS_SET_ENVIRONMENT__VARS__MY__Var", "x", "environment.vars.MY__Var", "x"),
        ("TFOS_SET_DATA__OPTIONS__HEADER", "true", "data.options.header", "true"),
        ("TFOS_SET_GPUS", "0", "gpus.per_node", 0),
    ],
)
def test_names_of_the_environment_become_keys(tmp_path: Path, name: str, value: str, key: str, wanted: object) -> None:
    resolved = resolve(tmp_path, environ={name: value})
    assert resolved.provenance[key] == f"environment:{name}"
    found: Any = resolved.spec.to_dict()
    while key:
        part = key if key in found else key.partition(".")[0]
        found, key = found[part], key[len(part) + 1 :]
    assert found == wanted


def test_unknown_names_are_kept_for_a_warning(tmp_path: Path) -> None:
    environ = {
        "TFOS_HOME": "/x",
        "TFOS_SERVER_HOST": "h",
        "TFOS_SERVER_PORT": "1",
        "TFOS_HOEM": "1",
        "TFOS_SET_": "1",
        "TFOS_NUM_PS": "1",
        "OTHER": "1",
    }
    assert resolve(tmp_path, environ=environ).unknown_environment == ("TFOS_HOEM", "TFOS_NUM_PS", "TFOS_SET_")


def test_the_process_environment_does_not_count_unless_it_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOS_SET_NUM_EXECUTORS", "7")
    assert resolve(tmp_path).spec.num_executors == 2


@pytest.mark.parametrize(
    ("overrides", "environ", "message"),
    [
        (["num_executorz=3"], {}, "--set num_executorz: unknown key 'num_executorz'"),
        (["num_executors=x"], {}, "--set num_executors: num_executors is 'x', expected a whole number"),
        ([], {"TFOS_SET_NUM_EXECUTORZ": "3"}, "TFOS_SET_NUM_EXECUTORZ: unknown key 'num_executorz'"),
        ([], {"TFOS_SET_NUM_EXECUTORS": "0"}, "TFOS_SET_NUM_EXECUTORS: num_executors is 0, expected 1 or more"),
        (["num_executors"], {}, "--set: --set takes KEY=VALUE, not 'num_executors'"),
        (["=3"], {}, "--set: --set takes KEY=VALUE, not ''"),
        (["data.columns=[a"], {}, "--set data.columns: the value of data.columns can not be read"),
        (["name.x=1"], {}, "--set name.x: name.x can not be set, because name is a single value"),
        (["spark.jars.x=1"], {}, "--set spark.jars.x: spark.jars.x can not be set, because spark.jars is a list"),
        (["spark={executor_cores: 1, executor_cores: 2}"], {}, "--set spark: the value of spark.executor_cores can not be read"),
        (["spark.queue=\udcff"], {}, "--set spark.queue: the value of spark.queue can not be read"),
    ],
)
def test_a_mistake_in_an_override_names_the_override(
    tmp_path: Path, overrides: list[str], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(tmp_path, overrides, environ)
    assert any(str(problem).startswith(message) for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize("flags", [{"env_vars": ["s3cr3t"]}, {"conf": ["=s3cr3t"]}, {"env_vars": ["A B=s3cr3t"]}])
def test_values_of_short_flags_are_not_echoed(tmp_path: Path, flags: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(tmp_path, **flags)
    assert "s3cr3t" not in repr(caught.value.args)


def test_mistakes_of_all_layers_come_together(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(SPEC + "num_ps: x\n")
    with pytest.raises(SpecError) as caught:
        load_spec(file, ["eval_node=3"], {"TFOS_SET_KERAS": "four"})
    places = {problem.where.rpartition("/")[2] for problem in caught.value.problems}
    assert places == {"job.yaml:12", "--set eval_node", "TFOS_SET_KERAS"}


def test_a_mistake_in_the_file_that_a_flag_replaces_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(SPEC + "num_ps: x\n")
    assert load_spec(file, ["num_ps=1"]).spec.num_ps == 1


def test_the_folder_of_the_spec_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    assert load_spec("job.yaml").folder == tmp_path
