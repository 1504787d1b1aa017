"""The engine of tfos: runs on the Spark driver and on executors.

The names of the 2022 API are given here, and only here; the code lives in modules with ordinary names. Importing this package
imports neither pyspark nor TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfos_core import cluster as TFCluster
    from tfos_core import compat, dfutil, gpu_info, marker, pipeline, reservation
    from tfos_core import context as TFSparkNode
    from tfos_core import node_api as TFNode
    from tfos_core import parallel as TFParallel
    from tfos_core import single_node as util

__all__ = (
    "TFCluster",
    "TFNode",
    "TFParallel",
    "TFSparkNode",
    "compat",
    "dfutil",
    "gpu_info",
    "marker",
    "pipeline",
    "reservation",
    "util",
)

_MODULES = {
    "TFCluster": "tfos_core.cluster",
    "TFNode": "tfos_core.node_api",
    "TFParallel": "tfos_core.parallel",
    "TFSparkNode": "tfos_core.context",
    "compat": "tfos_core.compat",
    "dfutil": "tfos_core.dfutil",
    "gpu_info": "tfos_core.gpu_info",
    "marker": "tfos_core.marker",
    "pipeline": "tfos_core.pipeline",
    "reservation": "tfos_core.reservation",
    "util": "tfos_core.single_node",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'tfos_core' has no attribute {name!r}")
