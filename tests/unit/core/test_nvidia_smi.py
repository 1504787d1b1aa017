"""nvidia-smi as a program: answers, refuses, hangs; the names of 2022; and the script that Spark runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.nvidia_smi import ANSWERS, answer, install

from tfos_core import gpu_info, single_node, util
from tfos_core.errors import ConfigError, GpuError
from tfos_core.gpu import VISIBLE_DEVICES, GpuSurvey, parse_survey
from tfos_core.nvidia_smi import survey, survey_until

SCRIPT = Path(gpu_info.__file__).with_name("gpu_discovery.sh")
HOSTS = sorted(path.name for path in ANSWERS.iterdir() if (path / "gpus.csv").exists())
PARTS = ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]


@pytest.fixture(autouse=True)
def _first_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No list of devices at the start; what the functions set is taken back."""
    monkeypatch.setenv(VISIBLE_DEVICES, "")
    monkeypatch.delenv(VISIBLE_DEVICES)
    single_node._visible_at_first.cache_clear()
    yield
    single_node._visible_at_first.cache_clear()


def looker(host: str) -> GpuSurvey:
    return parse_survey(*(answer(host, kind) for kind in ("list.txt", "gpus.csv", "processes.csv", "report.txt")))


@pytest.mark.parametrize("host", HOSTS)
def test_the_program_is_asked_for_what_the_answers_hold(host: str, tmp_path: Path) -> None:
    assert survey(str(install(tmp_path, host))) == looker(host)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("no_driver", "ended with code 9 and said: NVIDIA-SMI has failed because it couldn't communicate"),
        ("mismatch", "ended with code 18 and said: Failed to initialize NVML: Driver/library version mismatch"),
        ("lost_gpu", "ended with code 255 and said: Unable to determine the device handle for GPU0000:0B:00.0"),
    ],
)
def test_what_it_says_when_it_fails_is_passed_on(host: str, said: str, tmp_path: Path) -> None:
    found = survey(str(install(tmp_path, host)))
    assert found.gpus == ()
    assert said in found.problem


def test_a_driver_without_devices_is_no_failure(tmp_path: Path) -> None:
    assert survey(str(install(tmp_path, "no_devices"))) == GpuSurvey()


def test_a_host_without_the_program_is_told(tmp_path: Path) -> None:
    assert survey("nvidia-smi-of-nobody").problem == "there is no nvidia-smi-of-nobody on PATH"
    (tmp_path / "nvidia-smi").write_text("no program")
    assert "can not be run: Permission denied" in survey(str(tmp_path / "nvidia-smi")).problem


def test_a_program_that_hangs_is_left_behind_in_time(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    # The child holds the pipe, as a wrapper's would.
    program.write_text("#!/bin/sh\nsleep 300\necho never\n")
    program.chmod(0o755)
    began = time.monotonic()
    assert survey(str(program), timeout=0.5).problem == f"{program} did not answer within 0.5 s"
    assert time.monotonic() - began < 10


def test_looking_again_finds_what_another_job_has_left() -> None:
    answers = [looker("container_memory"), looker("four_idle")]
    found = survey_until(lambda seen: all(not gpu.in_use for gpu in seen.gpus), 60, look=lambda: answers.pop(0))
    assert len(found.gpus) == 4
    assert answers == []


def test_looking_again_has_an_end() -> None:
    busy = looker("container_memory")
    assert survey_until(lambda seen: False, 0.05, look=lambda: busy) == busy


# ---- the names of 2022 ---------------------------------------------------------------------------------------------------------


def test_the_forms_of_2022() -> None:
    assert gpu_info.get_gpus(1, 0, look=lambda: looker("two_3090_one_busy")) == "1"
    assert gpu_info.get_gpus(2, 1, format=gpu_info.AS_LIST, look=lambda: looker("four_idle")) == ["2", "3"]
    assert set(gpu_info.get_gpus(4, look=lambda: looker("four_idle")).split(",")) == {"0", "1", "2", "3"}
    assert gpu_info.get_gpus(1, 5, look=lambda: looker("four_idle")) == "1", "an index beyond the GPUs begins again"
    assert gpu_info.get_gpus(0, look=lambda: looker("four_idle")) == ""
    assert gpu_info.is_gpu_available(look=lambda: looker("two_3090_one_busy"))
    assert not gpu_info.is_gpu_available(look=GpuSurvey)


def test_too_few_gpus_are_an_error_and_not_a_wait() -> None:
    with pytest.raises(GpuError, match="5 free GPUs needed on this host: 4 present, 4 free"):
        gpu_info.get_gpus(5, look=lambda: looker("four_idle"))
    with pytest.raises(GpuError, match="no driver"):
        gpu_info.get_gpus(1, look=lambda: GpuSurvey(problem="no driver"))
    with pytest.raises(ConfigError, match="format is 'json'"):
        gpu_info.get_gpus(1, format="json")


def test_busy_gpus_are_waited_for_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_info, "MAX_WAIT_S", 0.05)
    with pytest.raises(GpuError, match="2 present, 1 free"):
        gpu_info.get_gpus(2, look=lambda: looker("two_3090_one_busy"))


def test_processes_of_one_host_get_different_gpus() -> None:
    nodes = ["10.0.0.1:7", "10.0.0.12:7", "10.0.0.1:8", "10.0.0.12:8"]
    chosen = []
    for index in range(4):
        util.single_node_env(1, index, nodes, look=lambda: looker("four_idle"))
        chosen.append(os.environ[VISIBLE_DEVICES])
    assert chosen == ["0", "0", "1", "1"]


def test_a_process_without_gpus_is_kept_from_taking_one() -> None:
    util.single_node_env(1, look=GpuSurvey)
    assert os.environ[VISIBLE_DEVICES] == ""
    util.single_node_env(0, look=lambda: looker("four_idle"))
    assert os.environ[VISIBLE_DEVICES] == ""


def test_the_list_that_was_there_first_limits_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "2,3")
    for index, expected in enumerate(["2", "3"]):
        util.single_node_env(1, index, look=lambda: looker("four_idle"))
        assert os.environ[VISIBLE_DEVICES] == expected


# ---- the script that Spark runs ------------------------------------------------------------------------------------------------


def discover(folder: Path, **environment: str) -> tuple[list[str], str]:
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run([str(SCRIPT)], env=path | environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["name"] == "gpu"
    return answer["addresses"], done.stderr


@pytest.mark.parametrize("host", HOSTS)
def test_the_script_names_the_gpus_that_a_node_would_find(host: str, tmp_path: Path) -> None:
    install(tmp_path, host)
    assert discover(tmp_path) == ([gpu.id for gpu in looker(host).gpus], "")


def test_the_script_names_the_parts_of_a_gpu(tmp_path: Path) -> None:
    install(tmp_path, "mig_a100")
    assert discover(tmp_path)[0][:2] == PARTS


@pytest.mark.parametrize("host", ["no_driver", "no_devices"])
def test_the_script_says_why_there_is_none(host: str, tmp_path: Path) -> None:
    install(tmp_path, host)
    addresses, said = discover(tmp_path)
    assert addresses == []
    assert said.startswith("nvidia-smi -L failed: ")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("2,3", ["0", "1"]), ("", []), ("-1", []), ("GPU-abc,MIG-d", ["0", "1"]), ("1,-1,2", ["0"]), ("NoDevFiles", [])],
)
def test_the_script_counts_within_a_list_that_is_there(visible: str, expected: list[str], tmp_path: Path) -> None:
    install(tmp_path, "four_idle")
    assert discover(tmp_path, **{VISIBLE_DEVICES: visible})[0] == expected


def test_the_script_can_be_run_as_a_program() -> None:
    assert os.access(SCRIPT, os.X_OK)
