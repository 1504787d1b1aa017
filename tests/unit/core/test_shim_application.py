"""The id by which an application is found at its cluster manager."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfos_core.shim.application import application_of

POD = {"spark.kubernetes.driver.pod.name": "digits-driver"}


@pytest.mark.parametrize(
    ("master", "conf", "wanted"),
    [
        ("k8s://https://h:6443", POD | {"spark.kubernetes.namespace": "training"}, "training:digits-driver"),
        ("k8s://https://h:6443", POD, "default:digits-driver"),
        ("k8s://https://h:6443", {}, "spark-1"),
        ("yarn", POD, "spark-1"),
        (None, POD, "spark-1"),
    ],
)
def test_a_driver_in_a_pod_is_known_by_its_pod(master: str | None, conf: dict[str, str], wanted: str) -> None:
    sc = SimpleNamespace(applicationId="spark-1", getConf=lambda: conf)
    assert application_of(sc, master=master) == wanted
