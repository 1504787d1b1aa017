"""The models: shorthands, round trips, closedness, descriptions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tfos_cli.spec import sections
from tfos_cli.spec.model import JobSpec
from tfos_cli.spec.problems import model_in
from tfos_cli.spec.values import is_secret_name, memory_bytes, property_bytes

LEAST: dict[str, Any] = {"name": "digits", "entrypoint": "apps/digits.py:main_fun"}

WHOLE: dict[str, Any] = LEAST | {
    "args": {"batch_size": 64, "layers": [32, 16], "nested": {"a": None}},
    "mode": "parallel",
    "input_mode": "tensorflow",
    "num_executors": 3,
    "num_ps": 1,
    "master_node": None,
    "eval_node": True,
    "driver_ps_nodes": True,
    "release_port": False,
    "reservation_timeout": 60,
    "feed_timeout": 0.5,
    "num_epochs": 2,
    "grace_secs": 3,
    "shutdown_timeout": 100,
    "gpus": {"per_node": 1, "source": "spark"},
    "tensorboard": {"enabled": True, "log_dir": "logs", "port": 6006, "bind": "loopback", "keep_secs": 5, "collect": False},
    "keras": "legacy",
    "equal_steps": True,
    "data": {
        "path": "data",
        "format": "csv",
        "options": {"header": "true"},
        "columns": ["a"],
        "input_mapping": {"a": "x"},
        "transform": "apps/digits.py:prepare",
        "source": None,
        "cache": "node",
        "cache_memory": "1g",
        "cache_disk": "2g",
        "cache_shuffle": True,
        "cache_seed": 7,
    },
    "stream": {
        "source": "files",
        "path": "in",
        "format": "json",
        "options": {"schema": "a int"},
        "columns": ["a"],
        "transform": "apps/digits.py:prepare",
        "host": None,
        "port": None,
        "interval": 5,
        "max_files": 3,
        "checkpoint": "c",
    },
    "infer": {
        "export_dir": "model",
        "signature_def_key": "s",
        "tag_set": "serve",
        "input_mapping": {"a": "x"},
        "output_mapping": {"y": "b"},
        "batch_size": 8,
        "keep": ["id"],
        "binary_outputs": ["y"],
        "bad_rows": "bad",
        "output": {"path": "out", "format": "json", "mode": "append"},
    },
    "environment": {"pack": "venv", "pack_level": 6, "vars": {"A": "1"}, "secrets": ["TOKEN"]},
    "restart": {"max_restarts": 2},
    "spark": {
        "master": "yarn",
        "deploy_mode": "cluster",
        "executor_cores": 2,
        "executor_memory": "2g",
        "executor_memory_overhead": "3g",
        "driver_memory": "512m",
        "queue": "ml",
        "conf": {"spark.a.b": "c"},
        "jars": ["a.jar"],
        "packages": ["g:a:1"],
        "py_files": ["a.zip"],
        "files": ["f"],
        "archives": ["a.tgz#x"],
    },
}


@pytest.mark.parametrize("data", [LEAST, WHOLE, LEAST | {"args": ["--batch", "64"]}], ids=["least", "whole", "argv"])
def test_a_spec_survives_the_round_trip_through_plain_values(data: dict[str, Any]) -> None:
    spec = JobSpec.from_dict(data)
    assert JobSpec.from_dict(spec.to_dict()) == spec


def test_plain_values_come_back_as_they_were_written() -> None:
    assert JobSpec.from_dict(WHOLE).to_dict() == WHOLE


def test_the_keys_are_those_of_the_contract() -> None:
    assert list(JobSpec.from_dict(LEAST).to_dict()) == list(WHOLE)
    for key in ("data", "stream", "infer", "environment", "restart", "spark", "tensorboard", "gpus"):
        section = model_in(JobSpec.model_fields[key].annotation)
        assert section is not None
        assert list(section.model_fields) == list(WHOLE[key])


def test_gpus_may_be_a_number_and_tensorboard_true() -> None:
    spec = JobSpec.from_dict(LEAST | {"gpus": 2, "tensorboard": True})
    assert (spec.gpus.per_node, spec.gpus.source) == (2, "auto")
    assert spec.tensorboard.enabled


def test_a_spec_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        JobSpec.from_dict(LEAST).name = "other"  # type: ignore[misc]


def test_free_texts_take_numbers_and_booleans() -> None:
    spec = JobSpec.from_dict(LEAST | {"spark": {"conf": {"a": 1, "b": True}}})
    assert spec.spark.conf == {"a": "1", "b": "true"}


@pytest.mark.parametrize("name", ["", "Digits", "1a", "a-", "a_b", "a\n", "a" * 64, 3])
def test_bad_names_are_refused(name: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.from_dict(LEAST | {"name": name})


@pytest.mark.parametrize("name", ["a", "a-b", "a1", "a" * 63])
def test_good_names_are_taken(name: str) -> None:
    assert JobSpec.from_dict(LEAST | {"name": name}).name == name


@pytest.mark.parametrize("size", ["", "1", "0g", "-1g", "1.5g", "1 g", "1gib", "1g\n", 1024, None, True])
def test_sizes_need_a_number_and_a_unit(size: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.from_dict(LEAST | {"spark": {"executor_memory": size}})


def test_sizes_are_bytes_by_their_unit() -> None:
    assert memory_bytes("512m") == 512 << 20
    assert memory_bytes("1GB") == 1 << 30
    assert memory_bytes("2t") == 2 << 40
    assert memory_bytes("8k") == 8 << 10
    assert property_bytes("512") == 512 << 20
    assert property_bytes("1g") == 1 << 30
    assert property_bytes("much") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_executors", 0),
        ("num_executors", 10_001),
        ("num_executors", 10**300),
        ("num_executors", True),
        ("num_executors", 2.0),
        ("num_ps", -1),
        ("feed_timeout", 0),
        ("feed_timeout", float("nan")),
        ("feed_timeout", float("inf")),
        ("feed_timeout", 10**400),
        ("grace_secs", -1),
        ("num_epochs", 0),
        ("gpus", -1),
        ("gpus", True),
        ("tensorboard", 1),
        ("eval_node", 1),
        ("args", "x"),
        ("args", [["x"]]),
        ("data", []),
    ],
)
def test_values_of_another_type_or_size_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.from_dict(LEAST | {key: value})


def test_ps_on_the_driver_come_on_top_of_the_executors() -> None:
    assert JobSpec.from_dict(LEAST | {"num_executors": 2, "num_ps": 1}).num_nodes == 2
    assert JobSpec.from_dict(LEAST | {"num_executors": 2, "num_ps": 1, "driver_ps_nodes": True}).num_nodes == 3


def test_every_field_says_what_it_is_and_its_default() -> None:
    models = [getattr(sections, name) for name in sections.__all__] + [JobSpec]
    fields = [
        (f"{model.__name__}.{name}", info)
        for model in models
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, info in model.model_fields.items()
    ]
    assert len(fields) > 60
    for name, info in fields:
        assert info.description, name
        has_section = model_in(info.annotation) is not None and not info.is_required() and info.default is not None
        assert info.is_required() or has_section or "Default " in info.description, name


def test_names_of_secrets_are_known() -> None:
    assert is_secret_name("spark.ssl.keyPassword")
    assert is_secret_name("AWS_SECRET_ACCESS_KEY")
    assert is_secret_name("API_TOKEN")
    assert not is_secret_name("spark.executor.memory")
