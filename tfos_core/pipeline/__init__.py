"""Training and inference as stages of Spark ML pipelines, with the names of the 2022 API.

    from tfos_core import pipeline

    estimator = pipeline.TFEstimator(train_fn, args).setInputMapping({"image": "image", "label": "label"}).setExportDir(path)
    model = estimator.fit(df)
    model.setInputMapping({"image": "image"}).setOutputMapping({"probabilities": "probabilities"}).transform(df)

Spark ML's base classes are in pyspark, so the modules below import it; this one does not, and neither does `namespace`, which nodes
need for their arguments.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfos_core.pipeline.namespace import Namespace

if TYPE_CHECKING:
    from tfos_core.pipeline.estimator import TFEstimator
    from tfos_core.pipeline.model import TFModel
    from tfos_core.pipeline.params import (
        HasBatchSize,
        HasClusterSize,
        HasEpochs,
        HasExportDir,
        HasFeedTimeout,
        HasGraceSecs,
        HasInferenceMapping,
        HasInputMapping,
        HasInputMode,
        HasKeep,
        HasMasterNode,
        HasModelDir,
        HasNumPS,
        HasOutputMapping,
        HasProtocol,
        HasReaders,
        HasSignatureDefKey,
        HasSteps,
        HasTagSet,
        HasTensorboard,
        HasTFRecordDir,
        TFParams,
        TFTypeConverters,
    )

__all__ = (
    "HasBatchSize",
    "HasClusterSize",
    "HasEpochs",
    "HasExportDir",
    "HasFeedTimeout",
    "HasGraceSecs",
    "HasInferenceMapping",
    "HasInputMapping",
    "HasInputMode",
    "HasKeep",
    "HasMasterNode",
    "HasModelDir",
    "HasNumPS",
    "HasOutputMapping",
    "HasProtocol",
    "HasReaders",
    "HasSignatureDefKey",
    "HasSteps",
    "HasTFRecordDir",
    "HasTagSet",
    "HasTensorboard",
    "Namespace",
    "TFEstimator",
    "TFModel",
    "TFParams",
    "TFTypeConverters",
)

_MODULES = {"TFEstimator": "estimator", "TFModel": "model"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'params')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
