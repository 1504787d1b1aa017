"""Batch inference with SavedModels: every Python worker of Spark loads the model once, and rows pass by as Arrow.

    from tfos_core.saved_model import InferenceSettings, infer_dataframe

    infer_dataframe(df, InferenceSettings(export_dir="models/digits", input_mapping={"pixels": "image"}, keep=("label",)))

Importing this package imports neither pyspark nor TensorFlow.
"""

from __future__ import annotations

from tfos_core.saved_model.dataframe import infer_dataframe
from tfos_core.saved_model.errors import ModelError, OutputCountError, RowRejectedError
from tfos_core.saved_model.settings import InferenceSettings

__all__ = ("InferenceSettings", "ModelError", "OutputCountError", "RowRejectedError", "infer_dataframe")
