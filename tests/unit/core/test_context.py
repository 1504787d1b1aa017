"""What a program sees of its cluster through `ctx`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tfos_core.context import TFNodeContext
from tfos_core.direct.node import request_of
from tfos_core.direct.shares import Shard
from tfos_core.errors import ClusterStateError, ConfigError
from tfos_core.topology import Role, cluster_seen_by

SPEC = {"chief": ["c:1"], "evaluator": ["e:1"], "ps": ["p:1", "p:2"], "worker": ["w:1", "w:2"]}


def context(role: Role, index: int = 0, **settings: Any) -> TFNodeContext:
    return TFNodeContext(executor_id=3, role=role, index=index, cluster_spec=cluster_seen_by(role, SPEC), **settings)


@pytest.mark.parametrize("role", [Role.CHIEF, Role.WORKER, Role.PS])
def test_the_evaluator_is_no_part_of_the_cluster_of_the_others(role: Role) -> None:
    assert context(role).cluster_spec == {name: hosts for name, hosts in SPEC.items() if name != "evaluator"}


def test_an_evaluator_knows_its_own_address_and_those_of_the_others() -> None:
    assert context(Role.EVALUATOR).cluster_spec == SPEC


@pytest.mark.parametrize("role", [Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR])
def test_workers_are_counted_with_the_chief_and_without_ps_and_evaluator(role: Role) -> None:
    assert context(role).num_workers == 3


def test_the_chief_comes_first_among_those_that_train() -> None:
    assert [context(Role.CHIEF).worker_index, context(Role.WORKER).worker_index, context(Role.WORKER, 1).worker_index] == [0, 1, 2]


@pytest.mark.parametrize("role", [Role.PS, Role.EVALUATOR])
def test_a_node_that_does_not_train_has_no_place_among_the_workers(role: Role) -> None:
    with pytest.raises(ClusterStateError, match=f"{role}:0 does not train"):
        assert context(role).worker_index


def test_an_evaluator_starts_no_server() -> None:
    reports: list[Any] = []
    with pytest.raises(ClusterStateError, match="evaluator:0 is not part of the training cluster"):
        context(Role.EVALUATOR, report=reports.append).start_cluster_server()
    assert reports == [], "the driver is not told of a server that does not exist"


DATA = {"path": "/data/train", "format": "parquet", "columns": ("a", "b"), "input_mapping": {"a": "x"}, "options": {"k": "v"}}
NOTHING = {"path": None, "format": None, "columns": None, "input_mapping": None, "options": None, "shuffle": 0, "seed": 0}


def request(ctx: TFNodeContext, *, shard: bool = True, **changed: Any) -> Any:
    return request_of(ctx, shard=shard, **(NOTHING | changed))


def test_a_dataset_is_of_what_the_spec_says_unless_the_call_says_otherwise() -> None:
    ctx = context(Role.WORKER, 1, data=DATA, default_fs="hdfs://nn:8020")
    found = request(ctx)
    assert (found.path, found.format, found.columns) == ("hdfs://nn:8020/data/train", "parquet", ("a", "b"))
    assert (found.input_mapping, found.options, found.shard) == ({"a": "x"}, {"k": "v"}, Shard(index=2, count=3))
    other = request(ctx, path="s3://b/test", columns=["c"], options={})
    assert (other.path, other.format, other.columns) == ("s3://b/test", None, ["c"])
    assert (other.input_mapping, other.options) == (None, {})
    with pytest.raises(ConfigError, match="no path"):
        request(context(Role.CHIEF))


def test_a_node_that_does_not_train_reads_all_or_nothing() -> None:
    ctx = context(Role.EVALUATOR, data=DATA)
    assert request(ctx, shard=False).shard == Shard(index=0, count=1)
    with pytest.raises(ClusterStateError, match="evaluator:0") as caught:
        request(ctx)
    assert "shard=False" in str(caught.value.hint)


def test_files_go_to_storage_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ctx = context(Role.CHIEF, default_fs="memory://root", working_dir=str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"1")
    filesystem = fsspec.filesystem("memory")
    try:
        assert ctx.publish(str(tmp_path / "model"), "/models/a") == "memory://root/models/a"
        first, second = Path(ctx.fetch("memory://root/models/a")), Path(ctx.fetch("memory://root/models/a"))
        assert first != second
        assert (first / "weights").read_bytes() == (second / "weights").read_bytes() == b"1"
        assert first.name == "a"
        assert ctx.fetch("memory://root/models/a/weights", str(tmp_path / "w")) == str(tmp_path / "w")
    finally:
        filesystem.store.clear()
        filesystem.pseudo_dirs[:] = [""]


def test_what_is_on_this_machine_is_not_copied_without_need(tmp_path: Path) -> None:
    assert context(Role.CHIEF, working_dir=str(tmp_path)).fetch("model") == str(tmp_path / "model")
