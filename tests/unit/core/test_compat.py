from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core import compat, node_api
from tfos_core.context import TFNodeContext
from tfos_core.topology import Role


def fake_tensorflow(monkeypatch: pytest.MonkeyPatch, gpus: list[str]) -> None:
    policies = SimpleNamespace(OFF="off")
    fake = SimpleNamespace(
        data=SimpleNamespace(experimental=SimpleNamespace(AutoShardPolicy=policies)),
        config=SimpleNamespace(list_physical_devices=lambda kind: gpus if kind == "GPU" else ["CPU:0"]),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", fake)


def test_auto_sharding_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tensorflow(monkeypatch, [])
    options: Any = SimpleNamespace(experimental_distribute=SimpleNamespace(auto_shard_policy="auto"))
    compat.disable_auto_shard(options)
    assert options.experimental_distribute.auto_shard_policy == "off"


@pytest.mark.parametrize(("gpus", "expected"), [([], False), (["GPU:0"], True)])
def test_a_gpu_is_one_that_tensorflow_sees(monkeypatch: pytest.MonkeyPatch, gpus: list[str], expected: bool) -> None:
    fake_tensorflow(monkeypatch, gpus)
    assert compat.is_gpu_available() is expected


def test_the_functions_of_2022_ask_the_context() -> None:
    released: list[int] = []
    ctx = TFNodeContext(
        executor_id=0,
        role=Role.WORKER,
        index=0,
        cluster_spec={"worker": ["w:1"]},
        default_fs="hdfs://nn",
        release=lambda: released.append(1),
    )
    assert node_api.hdfs_path(ctx, "/x") == ctx.absolute_path("/x") == "hdfs://nn/x"
    node_api.release_port(ctx)
    assert released == [1]
