"""Inference as a stage of a pipeline. Importing this module imports pyspark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pyspark.ml import Model
from pyspark.ml.util import MLReadable, MLWritable

from tfos_core.errors import ConfigError
from tfos_core.pipeline.columns import check_columns
from tfos_core.pipeline.namespace import Namespace
from tfos_core.pipeline.params import (
    HasBatchSize,
    HasExportDir,
    HasInputMapping,
    HasKeep,
    HasModelDir,
    HasOutputMapping,
    HasSignatureDefKey,
    HasTagSet,
    TFParams,
)
from tfos_core.pipeline.persistence import StageReader, StageWriter, pack_args, unpack_args

__all__ = ("TFModel",)

_USED = ("batch_size", "export_dir", "input_mapping", "keep", "model_dir", "output_mapping", "signature_def_key", "tag_set")


class TFModel(
    Model,  # type: ignore[misc]
    TFParams,
    HasInputMapping,
    HasOutputMapping,
    HasKeep,
    HasBatchSize,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
    MLWritable,  # type: ignore[misc]
    MLReadable,  # type: ignore[misc]
):
    """Predicts with the SavedModel in `export_dir`: every Spark Python worker loads it once and runs it by itself.

    `transform(df)` is lazy and gives one row for each row: the columns of `keep`, then the outputs in lexicographic order of their
    tensors' names.

    Args:
        tf_args: a dict, a namespace, or a list of strings; gives values for parameters that are not set.
    """

    # Saved pipelines name the class by it, so files of this package may move.
    __module__ = "tfos_core.pipeline"

    def __init__(self, tf_args: Any) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            output_mapping={},
            keep=[],
            batch_size=100,
            model_dir=None,
            export_dir=None,
            signature_def_key=None,
            tag_set=None,
        )

    def _transform(self, dataset: Any) -> Any:
        from tfos_core.saved_model import InferenceSettings, infer_dataframe

        args = self._merged(*_USED)
        if args.export_dir is None:
            only = f"; a checkpoint in model_dir ({args.model_dir}) holds no model" if args.model_dir else ""
            raise ConfigError(f"export_dir is not set{only}", "Give the folder of a SavedModel with setExportDir().")
        check_columns(dataset, args.input_mapping, "input_mapping")
        keep = dataset.columns if args.keep == ["*"] else args.keep
        check_columns(dataset, keep, "keep")
        settings = InferenceSettings(
            export_dir=args.export_dir,
            signature_def_key=args.signature_def_key or "serving_default",
            tag_set=args.tag_set or "serve",
            input_mapping=args.input_mapping,
            output_mapping=args.output_mapping,
            batch_size=args.batch_size,
            keep=tuple(keep),
        )
        return infer_dataframe(dataset, settings)

    def write(self) -> StageWriter:
        """Spark ML's writer: the parameters and arguments; the SavedModel stays where it is."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Spark ML's reader."""
        return StageReader(cls)

    def _content(self) -> dict[str, Any]:
        return {"args": pack_args(self.args)}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        return cls(unpack_args(content["args"]))
