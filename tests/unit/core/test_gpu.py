"""Which GPUs are there, which are free, and who gets which."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import pytest
from fakes.nvidia_smi import answer

from tfos_core.errors import ConfigError, GpuError
from tfos_core.gpu import (
    Gpu,
    GpuSurvey,
    Seat,
    assign,
    has_hidden_users,
    index_into,
    parse_survey,
    restrict,
    shortage,
)
from tfos_core.gpu_request import GpuRequest, GpuSource, asked_gpus, resolve_request

A100_PARTS = (
    "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
    "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
    "MIG-1e8d5f0a-7c3b-5b7e-a1d2-0f4c6b8e9d21",
)


H200_PROFILES = ("1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb")


def survey_of(host: str) -> GpuSurvey:
    return parse_survey(*(answer(host, kind) for kind in ("list.txt", "gpus.csv", "processes.csv", "report.txt")))


def made_up(count: int, *, busy: tuple[int, ...] = ()) -> GpuSurvey:
    gpus = (
        Gpu(id=str(i), index=i, uuid=f"GPU-{i}", name="L4", in_use="process 7 (python)" if i in busy else "") for i in range(count)
    )
    return GpuSurvey(gpus=tuple(gpus))


def free(survey: GpuSurvey) -> list[str]:
    return [gpu.id for gpu in survey.gpus if not gpu.in_use]


# ---- what nvidia-smi says ------------------------------------------------------------------------------------------------------


def test_names_with_spaces_do_not_hide_that_a_gpu_is_busy() -> None:
    survey = survey_of("two_3090_one_busy")
    assert [gpu.name for gpu in survey.gpus] == ["NVIDIA GeForce RTX 3090"] * 2
    assert survey.gpus[0].in_use == "process 41233 (python)"
    assert free(survey) == ["1"]
    assert assign([Seat(node="worker:0", host="h", gpus=1)], {"h": survey}, required=True) == {"worker:0": ("1",)}


def test_every_product_name_is_read_whole() -> None:
    survey = survey_of("mixed_names")
    assert [(gpu.id, gpu.name) for gpu in survey.gpus] == [
        ("0", "Quadro P400"),
        ("1", "NVIDIA RTX 6000 Ada Generation"),
        ("2", "Tesla V100-SXM2-16GB"),
        ("3", "NVIDIA H100 80GB HBM3"),
    ]
    # A desktop on GPU 0 takes 412 MiB, and the program on GPU 3 has a space and a comma in its command.
    assert free(survey) == ["0", "1", "2"]
    assert survey.gpus[3].in_use.startswith("process 2211 (train")


def test_work_of_a_program_without_a_process_is_seen_by_its_memory() -> None:
    survey = survey_of("eight_titan_x")
    assert free(survey) == ["0"]
    assert survey.gpus[1].in_use == "10032 of 12206 MiB are taken"


def test_a_process_of_another_container_counts_although_it_has_no_name() -> None:
    survey = survey_of("eight_h200_busy")
    assert free(survey) == []
    assert survey.gpus[0].in_use == "process 1328667 (python3.10)"
    assert survey.gpus[7].in_use == "process 1758887 ([Not Found])"


def test_a_gpu_without_memory_of_its_own_is_busy_while_a_process_computes_there() -> None:
    assert survey_of("unified_memory_gb10").gpus[0].in_use == "process 114687 (python)"


def test_the_parts_of_a_gpu_in_mig_mode_take_its_place() -> None:
    survey = survey_of("mig_a100")
    assert [gpu.id for gpu in survey.gpus] == [*A100_PARTS, "1"]
    assert [gpu.is_part for gpu in survey.gpus] == [True, True, True, False]
    assert survey.gpus[0].name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert free(survey) == [*A100_PARTS, "1"]


def test_parts_as_older_drivers_name_them_are_parts_too() -> None:
    survey = survey_of("mig_a100_old_driver")
    assert [gpu.id.rpartition("GPU-")[0] for gpu in survey.gpus] == ["MIG-"] * 4
    assert [gpu.id.partition("/")[2] for gpu in survey.gpus] == ["7/0", "8/0", "9/0", "11/0"]
    assert free(survey) == [gpu.id for gpu in survey.gpus]


def test_processes_that_are_listed_under_a_gpu_with_parts_are_found_in_the_report() -> None:
    survey = survey_of("mig_h200_busy")
    assert [gpu.name for gpu in survey.gpus] == [f"NVIDIA H200 MIG {kind}" for kind in H200_PROFILES]
    # They share compute instance 1 of GPU instance 2, which is device 1.
    assert [gpu.in_use for gpu in survey.gpus] == ["", "process 12249 (memhog)", "", "", ""]


@pytest.mark.parametrize(
    "report", ["", "another form", "GPU 0:\n    GPU UUID : {uuid}\n    GPU instance ID : 7\n    Process ID : 5\n    Name : x\n"]
)
def test_a_process_that_nobody_can_place_may_be_in_any_part(report: str) -> None:
    answers = [answer("mig_h200_busy", kind) for kind in ("list.txt", "gpus.csv", "processes.csv")]
    survey = parse_survey(*answers, report.format(uuid="GPU-2b9d4c61-7e58-4f03-a1c9-d0e5f6a7b8c9"))
    assert free(survey) == []
    assert survey.gpus[0].in_use == "process 12249 (memhog), in some part of GPU 0"


def test_the_report_is_asked_for_only_where_it_tells_more() -> None:
    asked = {
        host: has_hidden_users(answer(host, "list.txt"), answer(host, "processes.csv"))
        for host in ("mig_h200_busy", "mig_a100", "mig_container", "eight_h200_busy")
    }
    assert asked == {"mig_h200_busy": True, "mig_a100": False, "mig_container": False, "eight_h200_busy": False}


def test_a_process_that_is_listed_under_a_part_leaves_the_others_free() -> None:
    process = f"{A100_PARTS[1]}, 90121, 9710, python3\n"
    survey = parse_survey(answer("mig_a100", "list.txt"), answer("mig_a100", "gpus.csv"), process)
    assert free(survey) == [A100_PARTS[0], A100_PARTS[2], "1"]
    assert survey.gpus[1].in_use == "process 90121 (python3)"


def test_a_container_that_may_not_read_what_others_do_has_its_part() -> None:
    (part,) = survey_of("mig_container").gpus
    assert part.is_part
    assert part.in_use == ""


def test_a_node_that_needs_two_gets_whole_gpus() -> None:
    needs = [Seat(node="worker:0", host="h", gpus=2)]
    with pytest.raises(GpuError, match=r"2 needed \(worker:0\), 1 present"):
        assign(needs, {"h": survey_of("mig_a100")}, required=True)


def test_memory_that_another_container_holds_makes_a_gpu_busy() -> None:
    survey = survey_of("container_memory")
    assert free(survey) == ["1"]
    assert survey.gpus[0].in_use == "21540 of 23034 MiB are taken"


def test_a_card_that_reports_neither_memory_nor_processes_is_free() -> None:
    assert free(survey_of("legacy_not_supported")) == ["0"]


def test_a_survey_survives_json() -> None:
    survey = survey_of("mig_a100")
    assert GpuSurvey.from_dict(json.loads(json.dumps(survey.to_dict()))) == survey


# ---- who gets which ------------------------------------------------------------------------------------------------------------


def test_two_workers_that_need_two_each_do_not_fit_on_three_gpus() -> None:
    seats = [Seat(node="ps:0", host="h"), Seat(node="worker:0", host="h", gpus=2), Seat(node="worker:1", host="h", gpus=2)]
    with pytest.raises(GpuError) as caught:
        assign(seats, {"h": made_up(3)}, required=True)
    assert str(caught.value) == "too few GPUs on h: 4 needed (worker:0, worker:1 with 2 each), 3 present"
    assert shortage("h", seats, made_up(3))[1] is False


def test_a_busy_gpu_may_become_free_and_is_named() -> None:
    seats = [Seat(node="worker:0", host="h", gpus=2), Seat(node="worker:1", host="h", gpus=2)]
    text, may_help = shortage("h", seats, made_up(4, busy=(2,)))
    assert "4 present, 3 free; GPU 2 (L4) is in use: process 7 (python)" in text
    assert may_help


def test_nodes_of_one_host_get_distinct_gpus_in_their_order() -> None:
    seats = [Seat(node=f"worker:{i}", host="h", gpus=2) for i in range(2)]
    assert assign(seats, {"h": made_up(5, busy=(0,))}, required=True) == {"worker:0": ("1", "2"), "worker:1": ("3", "4")}


def test_hosts_whose_names_begin_alike_are_different_hosts() -> None:
    hosts = ["10.0.0.1", "10.0.0.12", "10.0.0.1", "10.0.0.12"]
    seats = [Seat(node=f"worker:{i}", host=host, gpus=1) for i, host in enumerate(hosts)]
    dealt = assign(seats, {"10.0.0.1": made_up(2), "10.0.0.12": made_up(2)}, required=True)
    assert dealt == {"worker:0": ("0",), "worker:1": ("0",), "worker:2": ("1",), "worker:3": ("1",)}


def test_ps_and_evaluator_take_none_and_cost_none() -> None:
    seats = [Seat(node="ps:0", host="h"), Seat(node="worker:0", host="h", gpus=1), Seat(node="evaluator:0", host="h")]
    assert assign(seats, {"h": made_up(1)}, required=True) == {"ps:0": (), "worker:0": ("0",), "evaluator:0": ()}


def test_when_nothing_was_asked_those_who_come_late_get_none() -> None:
    seats = [Seat(node=f"worker:{i}", host="h", gpus=1) for i in range(3)]
    dealt = assign(seats, {"h": made_up(3, busy=(0,))}, required=False)
    assert dealt == {"worker:0": ("1",), "worker:1": ("2",), "worker:2": ()}
    assert assign(seats, {"h": GpuSurvey(problem="there is no nvidia-smi on PATH")}, required=False)["worker:0"] == ()


def test_why_nothing_could_be_seen_is_told() -> None:
    survey = GpuSurvey(problem="there is no nvidia-smi on PATH")
    with pytest.raises(GpuError, match=r"1 needed \(worker:0\), 0 present \(there is no nvidia-smi on PATH\)"):
        assign([Seat(node="worker:0", host="h", gpus=1)], {"h": survey}, required=True)


# ---- CUDA_VISIBLE_DEVICES that is there already -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "visible", "expected"),
    [
        (["0", "1"], None, ("0", "1")),
        (["0"], "2,3", ("2",)),
        (["1", "0"], "2,3", ("3", "2")),
        (["1"], " 4, GPU-abc ", ("GPU-abc",)),
        (["MIG-7"], "MIG-5,MIG-7", ("MIG-7",)),
        (["MIG-7"], None, ("MIG-7",)),
        ([], "2,3", ()),
    ],
)
def test_addresses_of_spark_are_positions_in_the_list_that_is_there(
    addresses: list[str], visible: str | None, expected: tuple[str, ...]
) -> None:
    assert index_into(addresses, visible) == expected


@pytest.mark.parametrize(("address", "visible"), [("2", "2,3"), ("0", ""), ("GPU-x", "0,1")])
def test_an_address_that_the_list_does_not_have_is_refused(address: str, visible: str) -> None:
    with pytest.raises(GpuError, match=f"address '{address}'"):
        index_into([address], visible)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2", "3"]),
        ("3,1", ["3", "1"]),
        ("", []),
        ("-1", []),
        ("1,9,2", ["1"]),
        ("1,1", ["1"]),
        ("GPU-2", ["GPU-2"]),
    ],
)
def test_an_existing_list_limits_what_nvidia_smi_offers(visible: str | None, expected: list[str]) -> None:
    assert [gpu.id for gpu in restrict(made_up(4).gpus, visible)] == expected


# ---- what was asked ------------------------------------------------------------------------------------------------------------

EXECUTORS = "spark.executor.resource.gpu.amount"
TASKS = "spark.task.resource.gpu.amount"
SPARK, SMI = GpuSource.SPARK, GpuSource.NVIDIA_SMI


@pytest.mark.parametrize(
    ("asked", "source", "master", "conf", "expected"),
    [
        (0, "auto", "spark://h:1", {EXECUTORS: "2"}, GpuRequest()),
        (2, "auto", "spark://h:1", {EXECUTORS: "2"}, GpuRequest(per_node=2, source=SPARK)),
        (1, "auto", "spark://h:1", {EXECUTORS: "2"}, GpuRequest(per_node=1, source=SPARK)),
        (2, "auto", "spark://h:1", {}, GpuRequest(per_node=2, source=SMI)),
        (2, "nvidia-smi", "spark://h:1", {EXECUTORS: "2"}, GpuRequest(per_node=2, source=SMI)),
        (None, "auto", "spark://h:1", {}, GpuRequest(per_node=1, source=SMI, required=False)),
        (None, "auto", "spark://h:1", {EXECUTORS: "2"}, GpuRequest(per_node=1, source=SPARK)),
        (None, "auto", "spark://h:1", {EXECUTORS: "2", TASKS: "2"}, GpuRequest(per_node=2, source=SPARK)),
        (None, "auto", "yarn", {EXECUTORS: "1", TASKS: "0.25"}, GpuRequest(per_node=1, source=SPARK)),
        (None, "auto", "k8s://https://h", {}, GpuRequest()),
        (None, "spark", "yarn", {}, GpuRequest()),
    ],
)
def test_what_nodes_get(asked: int | None, source: str, master: str, conf: Mapping[str, str], expected: GpuRequest) -> None:
    assert resolve_request(asked, source, master=master, conf=conf) == expected


@pytest.mark.parametrize(
    ("asked", "source", "master", "conf", "said"),
    [
        (2, "auto", "yarn", {EXECUTORS: "1"}, "every node needs 2 GPUs from Spark, but spark.executor.resource.gpu.amount is 1"),
        (1, "spark", "spark://h:1", {}, "amount is not set"),
        (1, "auto", "k8s://https://h", {}, "amount is not set"),
        (1, "nvidia-smi", "k8s://https://h", {}, "pods on Kubernetes may use only those that Spark asked for"),
        (-1, "auto", "yarn", {}, "gpus is -1"),
        (True, "auto", "yarn", {}, "gpus is True"),
        (1, "auto", "yarn", {EXECUTORS: "many"}, "'many', which is no number"),
    ],
)
def test_what_can_not_work_is_refused(asked: int, source: str, master: str, conf: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_request(asked_gpus(asked, None), source, master=master, conf=conf)


@pytest.mark.parametrize(
    ("function_args", "expected"),
    [
        (Namespace(num_gpus=2), GpuRequest(per_node=2, source=SMI)),
        ({"num_gpus": 0}, GpuRequest()),
        (Namespace(), GpuRequest(per_node=1, source=SMI, required=False)),
        (["--num_gpus", "2"], GpuRequest(per_node=1, source=SMI, required=False)),
        (Namespace(num_gpus=None), GpuRequest(per_node=1, source=SMI, required=False)),
    ],
)
def test_arguments_of_2022_may_say_how_many(function_args: Any, expected: GpuRequest) -> None:
    assert resolve_request(asked_gpus(None, function_args), "auto", master="yarn", conf={}) == expected


def test_what_the_caller_says_counts_more_than_the_arguments() -> None:
    assert asked_gpus(0, Namespace(num_gpus=2)) == 0
