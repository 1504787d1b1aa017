"""The id by which an application is found at its cluster manager."""

from __future__ import annotations

from typing import Any

__all__ = ("application_of",)


def application_of(sc: Any, *, master: str | None) -> str:
    """Spark's own id, which is YARN's too; `NAMESPACE:POD` of a driver in a pod, as `spark-submit --status` and `--kill` want it.

    Args:
        master: where the driver runs too (cluster deploy mode); None when it runs elsewhere.
    """
    if master is not None and master.startswith("k8s:"):
        conf = sc.getConf()
        pod = conf.get("spark.kubernetes.driver.pod.name", None)
        if pod:
            return f"{conf.get('spark.kubernetes.namespace', 'default')}:{pod}"
    return str(sc.applicationId)
