"""What is computed from a spec: Keras, the memory overhead, the format of data, the kind of cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tfos_cli.spec.formats import guess_format
from tfos_cli.spec.keras import TENSORFLOW_DISTRIBUTIONS, choose_keras, tensorflow_version
from tfos_cli.spec.masters import MasterKind, is_loopback, local_cluster, master_kind, standalone_hosts
from tfos_cli.spec.memory import choose_overhead
from tfos_cli.spec.model import JobSpec


def spec(**changes: Any) -> JobSpec:
    return JobSpec.from_dict({"name": "d", "entrypoint": "a.py:f", "num_executors": 2} | changes)


@pytest.mark.parametrize("distribution", TENSORFLOW_DISTRIBUTIONS)
def test_any_distribution_of_tensorflow_counts(distribution: str) -> None:
    versions = {distribution: "2.18.1", "tf_keras": "2.18.0"}
    assert tensorflow_version(versions.get) == "2.18.1"
    assert choose_keras(spec(), versions.get).keras == "legacy"


@pytest.mark.parametrize(
    ("changes", "versions", "keras", "reason"),
    [
        ({}, {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}, "legacy", "pairs with"),
        ({"num_executors": 1}, {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}, "keras3", "one node"),
        ({}, {"tensorflow": "2.2.0", "tf_keras": "2.21.0"}, "keras3", "does not pair"),
        ({}, {"tensorflow": "2.21.0"}, "keras3", "tf_keras is not installed"),
        ({}, {"tf_keras": "2.21.0"}, "keras3", "TensorFlow is not installed"),
        ({"keras": "legacy", "num_executors": 1}, {}, "legacy", "set in the spec"),
        ({"keras": "keras3"}, {"tensorflow": "2.21.0", "tf_keras": "2.21.0"}, "keras3", "set in the spec"),
        (
            {"num_executors": 1, "num_ps": 1, "driver_ps_nodes": True},
            {"tensorflow": "2.21.0", "tf_keras": "2.21.0"},
            "legacy",
            "pairs with",
        ),
    ],
)
def test_auto_is_legacy_for_many_nodes_with_a_matching_tf_keras(
    changes: dict[str, Any], versions: dict[str, str], keras: str, reason: str
) -> None:
    choice = choose_keras(spec(**changes), versions.get)
    assert choice.keras == keras
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("spark", "memory"),
    [
        ({"master": "yarn"}, "2048m"),
        ({"master": "k8s://https://h"}, "2048m"),
        ({"master": "yarn", "executor_memory": "16g"}, "8192m"),
        ({"master": "yarn", "conf": {"spark.executor.memory": "16g"}}, "8192m"),
        ({"master": "yarn", "executor_memory_overhead": "512m"}, "512m"),
        ({"master": "yarn", "conf": {"spark.executor.memoryOverhead": "1g"}}, None),
        ({"master": "yarn", "conf": {"spark.executor.memoryOverheadFactor": "1"}}, None),
        ({"master": "spark://h:1"}, None),
        ({}, None),
    ],
)
def test_the_overhead_is_computed_where_containers_are_killed(spark: dict[str, Any], memory: str | None) -> None:
    choice = choose_overhead(spec(spark=spark))
    assert choice.memory == memory
    assert choice.reason


@pytest.mark.parametrize(
    ("master", "executor_memory", "memory"), [("yarn", "1g", "2816m"), ("yarn", "16g", "8960m"), (None, "1g", None)]
)
def test_tensorboard_is_counted_in_the_overhead(master: str | None, executor_memory: str, memory: str | None) -> None:
    spark = {"master": master, "executor_memory": executor_memory}
    choice = choose_overhead(spec(spark=spark, tensorboard={"enabled": True}))
    assert choice.memory == memory
    assert ("and 768m for TensorBoard" in choice.reason) is (memory is not None)
    explicit = spec(spark={"master": "yarn", "executor_memory_overhead": "3g"}, tensorboard={"enabled": True})
    assert choose_overhead(explicit).memory == "3g"


def test_rows_that_nodes_keep_in_memory_are_counted_in_the_overhead() -> None:
    choice = choose_overhead(spec(spark={"master": "yarn"}, data={"path": "x.csv", "cache": "node", "cache_memory": "1g"}))
    assert choice.memory == "3072m"
    assert "and 1024m of data.cache_memory" in choice.reason
    assert choose_overhead(spec(spark={"master": "yarn"}, data={"path": "x.csv"})).memory == "2048m"


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("a.csv", "csv"),
        ("a.CSV.gz", "csv"),
        ("dir.parquet/", "parquet"),
        ("hdfs://nn.corp/x/*.json", "json"),
        ("x.snappy.orc", "orc"),
        ("x/part-*.tfrecord.gz", "tfrecord"),
        ("x.txt", "text"),
        ("x", None),
        ("a.csv/x", None),
        ("csv", None),
        ("x.gz", None),
        (".", None),
        ("", None),
        (None, None),
    ],
)
def test_the_format_is_that_of_the_ending(path: str | None, format_: str | None) -> None:
    assert guess_format(path) == format_


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        (None, MasterKind.EMBEDDED),
        ("local", MasterKind.LOCAL),
        ("local[*]", MasterKind.LOCAL),
        ("local[2,3]", MasterKind.LOCAL),
        ("local-cluster[2, 1, 1024]", MasterKind.LOCAL_CLUSTER),
        ("local-cluster[2,1]", MasterKind.UNKNOWN),
        ("spark://h:1", MasterKind.STANDALONE),
        ("spark://", MasterKind.UNKNOWN),
        ("yarn", MasterKind.YARN),
        ("k8s://https://h", MasterKind.KUBERNETES),
        ("mesos://h", MasterKind.UNKNOWN),
        ("", MasterKind.UNKNOWN),
    ],
)
def test_masters_are_told_apart(master: str | None, kind: MasterKind) -> None:
    assert master_kind(master) is kind


def test_parts_of_masters() -> None:
    assert local_cluster("local-cluster[2, 1, 1024]") == (2, 1, 1024)
    assert local_cluster("yarn") is None
    assert standalone_hosts("spark://a:1,[::1]:2,c") == ("a", "::1", "c")


@pytest.mark.parametrize(
    ("host", "answer"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("localhost.corp", False)],
)
def test_loopback_is_compared_exactly(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer
