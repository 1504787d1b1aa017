"""The step of a node task that takes GPUs: all tasks of a barrier decide together, and the process sees what its node got."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tfos_core.errors import GpuError
from tfos_core.gpu import VISIBLE_DEVICES, Gpu, GpuSurvey
from tfos_core.gpu_request import GpuRequest, GpuSource
from tfos_core.node_config import ClusterConfig, NodeConfig
from tfos_core.node_environment import process_environment
from tfos_core.node_gpus import take_gpus, visible_devices
from tfos_core.topology import ClusterPlan, InputMode, NodeSlot

SPARK = GpuRequest(per_node=1, source=GpuSource.SPARK)


def two_each() -> GpuRequest:
    return GpuRequest(per_node=2, source=GpuSource.NVIDIA_SMI)


def host_with(count: int, *, busy: tuple[int, ...] = ()) -> GpuSurvey:
    gpus = [
        Gpu(id=str(i), index=i, uuid=f"GPU-{i}", name="L4", in_use="process 7 (python)" if i in busy else "") for i in range(count)
    ]
    return GpuSurvey(gpus=tuple(gpus))


@dataclass
class Barrier:
    """What the tasks of one stage share; each calls from a thread of its own."""

    addresses: Sequence[str]
    given: Sequence[Sequence[str]] = ()
    messages: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(len(self.addresses), timeout=10)


@dataclass
class Task:
    """One task of a `Barrier`."""

    stage: Barrier
    partition: int

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def resources(self) -> dict[str, Any]:
        given = self.stage.given[self.partition] if self.stage.given else []
        return {"gpu": SimpleNamespace(addresses=list(given))} if given else {}

    def getTaskInfos(self) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(address=address) for address in self.stage.addresses]

    def allGather(self, message: str) -> list[str]:  # noqa: N802
        self.stage.messages[self.partition] = message
        self.stage.barrier.wait()
        return [self.stage.messages[partition] for partition in sorted(self.stage.messages)]


def run(
    request: GpuRequest, slots: Sequence[NodeSlot], stage: Barrier, *, visible: str | None = None, **more: Any
) -> list[tuple[str, ...] | str]:
    """What every task gets: GPUs, or the sentence of its error."""

    def one(partition: int) -> tuple[str, ...] | str:
        try:
            return take_gpus(request, slots, Task(stage, partition), visible=visible, **more)
        except GpuError as exc:
            return str(exc)

    with ThreadPoolExecutor(len(slots)) as pool:
        return list(pool.map(one, range(len(slots))))


def slots_of(nodes: int, **roles: Any) -> tuple[NodeSlot, ...]:
    return ClusterPlan.build(nodes, **roles).on_executors


def test_one_task_looks_for_each_host_and_all_agree() -> None:
    looked: list[str] = []

    def look() -> GpuSurvey:
        looked.append("")
        return host_with(4)

    stage = Barrier(["10.0.0.1:7", "10.0.0.12:7", "10.0.0.1:8"])
    assert run(two_each(), slots_of(3), stage, look=look) == [("0", "1"), ("0", "1"), ("2", "3")]
    assert len(looked) == 2


def test_every_task_says_why_when_the_host_is_too_small() -> None:
    stage = Barrier(["h:1", "h:2", "other:1"])
    said = run(two_each(), slots_of(3), stage, look=lambda: host_with(3))
    assert said == ["too few GPUs on h: 4 needed (worker:0, worker:1 with 2 each), 3 present"] * 3


def test_a_gpu_that_another_job_lets_go_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfos_core.nvidia_smi._LOOK_S", 0.01)
    seen = [host_with(2, busy=(0,)), host_with(2, busy=(0,)), host_with(2)]
    assert run(two_each(), slots_of(1), Barrier(["h:1"]), look=lambda: seen.pop(0), wait_s=30) == [("0", "1")]
    assert seen == []


def test_waiting_for_a_busy_gpu_has_an_end_and_names_who_uses_it() -> None:
    (said,) = run(two_each(), slots_of(1), Barrier(["h:1"]), look=lambda: host_with(2, busy=(0,)), wait_s=0.05)
    assert said == "too few GPUs on h: 2 needed (worker:0), 2 present, 1 free; GPU 0 (L4) is in use: process 7 (python)"


def test_when_nothing_was_asked_nobody_waits() -> None:
    soft = GpuRequest(per_node=1, source=GpuSource.NVIDIA_SMI, required=False)
    looks = [host_with(2, busy=(0,))]
    assert run(soft, slots_of(2), Barrier(["h:1", "h:2"]), look=looks.pop, wait_s=600) == [("1",), ()]


def test_ps_and_evaluator_take_none_from_anybody() -> None:
    slots = slots_of(3, num_ps=1, eval_node=True)
    by_smi = GpuRequest(per_node=1, source=GpuSource.NVIDIA_SMI)
    assert run(by_smi, slots, Barrier(["h:1", "h:2", "h:3"]), look=lambda: host_with(1)) == [(), (), ("0",)]
    # Spark gives every executor of an application the same.
    assert run(SPARK, slots, Barrier(["h:1", "h:2", "h:3"], given=[["0"], ["1"], ["2"]])) == [(), (), ("2",)]


def test_addresses_of_spark_index_into_the_list_of_the_executor() -> None:
    stage = Barrier(["a:1", "b:1"], given=[["0"], ["1"]])
    assert run(SPARK, slots_of(2), stage, visible="2,3") == [("2",), ("3",)]


def test_a_node_takes_no_more_than_it_asked_for() -> None:
    assert run(SPARK, slots_of(1), Barrier(["a:1"], given=[["4", "5"]])) == [("4",)]


def test_what_goes_wrong_on_one_executor_ends_all_tasks() -> None:
    stage = Barrier(["a:1", "b:1"], given=[["0"], []])
    assert run(SPARK, slots_of(2), stage) == ["worker:1 on b: 1 GPUs needed, and Spark gave 0"] * 2


def test_nothing_is_gathered_when_no_gpus_are_wanted() -> None:
    stage = Barrier(["a:1", "b:1"])
    assert run(GpuRequest(), slots_of(2), stage) == [(), ()]
    assert stage.messages == {}


# ---- the process ----------------------------------------------------------------------------------------------------------------


def environment_of(gpus: tuple[str, ...], base: dict[str, str], **job: str) -> dict[str, str]:
    cluster = ClusterConfig(
        run_id="r",
        generation="g",
        server_host="h",
        server_port=1,
        secret="00",
        has_user_secrets=False,
        input_mode=InputMode.SPARK,
        reservation_timeout=1,
        release_port=True,
        environment=job,
        keras=None,
        threads=None,
        default_fs="file://",
        num_epochs=1,
        data={},
        log_dir=None,
    )
    config = NodeConfig(
        cluster=cluster,
        slot=slots_of(1)[0],
        jvm_pid=0,
        jvm_started=0,
        working_dir="/",
        python="python",
        python_path="",
        gpus=gpus,
    )
    assert NodeConfig.from_dict(config.to_dict()) == config
    return process_environment(config, {"worker": ["h:1"]}, {}, base, temporary="/tmp/node")


def test_a_process_sees_its_gpus_counted_as_nvidia_smi_counts() -> None:
    env = environment_of(("1", "2"), {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert (env[VISIBLE_DEVICES], env["CUDA_DEVICE_ORDER"]) == ("1,2", "PCI_BUS_ID")


def test_who_made_the_list_decides_how_it_counts() -> None:
    assert "CUDA_DEVICE_ORDER" not in environment_of(("2",), {VISIBLE_DEVICES: "2,3"})
    assert environment_of(("2",), {}, CUDA_DEVICE_ORDER="FASTEST_FIRST")["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


@pytest.mark.parametrize("base", [{}, {VISIBLE_DEVICES: "0,1"}])
def test_a_process_without_gpus_is_told_so(base: dict[str, str]) -> None:
    assert environment_of((), base)[VISIBLE_DEVICES] == ""
    assert environment_of((), base, CUDA_VISIBLE_DEVICES="0")[VISIBLE_DEVICES] == ""


def test_the_list_of_the_job_counts_before_that_of_the_host() -> None:
    assert visible_devices({VISIBLE_DEVICES: "1"}, {VISIBLE_DEVICES: "2"}) == "1"
    assert visible_devices({}, {VISIBLE_DEVICES: "2"}) == "2"
    assert visible_devices({}, {}) is None
