"""Training as a stage of a pipeline. Importing this module imports pyspark."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pyspark.ml import Estimator
from pyspark.ml.util import MLReadable, MLWritable

from tfos_core import cluster
from tfos_core.cancellation import Cancellation
from tfos_core.column_names import quoted
from tfos_core.errors import ConfigError, TfosError
from tfos_core.launch import default_fs
from tfos_core.options import ClusterOptions
from tfos_core.paths import absolute_path, has_scheme
from tfos_core.pipeline.columns import check_columns, is_vector, vector_to_array
from tfos_core.pipeline.model import TFModel
from tfos_core.pipeline.namespace import Namespace
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
)
from tfos_core.pipeline.persistence import StageReader, StageWriter, pack, pack_args, unpack, unpack_args
from tfos_core.topology import InputMode

__all__ = ("TFEstimator",)

logger = logging.getLogger(__name__)

#: An executor carries one node, so clusters of one application take turns (`CrossValidator(parallelism=2)` asks for two at once).
_one_cluster = threading.Lock()

#: Nodes are gone within this after a fit has failed, in seconds.
_GONE_S = 30.0

#: Options that a saved estimator keeps; the others are secrets, or belong to the program that calls.
_SAVED_OPTIONS = (
    "base_dir",
    "collect_interval_s",
    "environment",
    "feed_budget_bytes",
    "gpu_source",
    "gpus",
    "keras",
    "tensorboard",
)

_USED = (
    "cluster_size",
    "driver_ps_nodes",
    "epochs",
    "export_dir",
    "feed_timeout",
    "grace_secs",
    "inference_mapping",
    "input_mapping",
    "master_node",
    "model_dir",
    "num_ps",
    "tensorboard",
)


class TFEstimator(
    Estimator,  # type: ignore[misc]
    TFParams,
    HasInputMapping,
    HasInferenceMapping,
    HasOutputMapping,
    HasKeep,
    HasClusterSize,
    HasNumPS,
    HasInputMode,
    HasMasterNode,
    HasProtocol,
    HasGraceSecs,
    HasFeedTimeout,
    HasTensorboard,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
    HasTFRecordDir,
    HasBatchSize,
    HasEpochs,
    HasReaders,
    HasSteps,
    MLWritable,  # type: ignore[misc]
    MLReadable,  # type: ignore[misc]
):
    """Trains with `train_fn(args, ctx)` on a cluster that `fit(df)` starts, feeds and shuts down.

    The function gets `tf_args` with every parameter under its name (`merge_args_params`); when `tf_args` is a list of strings, it
    gets that list. It writes a SavedModel to `args.export_dir`, from which the fitted `TFModel` predicts.

    Rows have the columns of `input_mapping` in lexicographic order, or all columns in that order without one. Vectors of Spark ML
    arrive as arrays of float32.

    Args:
        train_fn: the function; it travels with Spark's cloudpickle.
        tf_args: a dict, a namespace, or a list of strings.
        export_fn: None; TensorFlow 1 exported with it.
        options: settings of the cluster beyond the parameters. `num_epochs` is that of `epochs`.

    Raises:
        ConfigError: there is an `export_fn`, or `tf_args` is something else.
    """

    # Saved pipelines name the class by it, so files of this package may move.
    __module__ = "tfos_core.pipeline"

    def __init__(
        self,
        train_fn: Callable[[Any, Any], Any],
        tf_args: Any,
        export_fn: None = None,
        *,
        options: ClusterOptions | None = None,
    ) -> None:
        super().__init__()
        if export_fn is not None:
            raise ConfigError(
                "export_fn was for TensorFlow 1", "Let train_fn end with ctx.export_saved_model(model, args.export_dir)."
            )
        self.train_fn = train_fn
        self.args = Namespace(tf_args)
        self.options = options or ClusterOptions()
        self._setDefault(
            input_mapping={},
            inference_mapping=None,
            output_mapping={},
            keep=[],
            cluster_size=1,
            num_ps=0,
            driver_ps_nodes=False,
            input_mode=InputMode.SPARK,
            master_node="chief",
            protocol="grpc",
            tensorboard=False,
            model_dir=None,
            export_dir=None,
            signature_def_key=None,
            tag_set=None,
            tfrecord_dir=None,
            batch_size=100,
            epochs=1,
            readers=1,
            steps=1000,
            grace_secs=30,
            feed_timeout=600.0,
        )

    def _fit(self, dataset: Any) -> TFModel:
        if type(dataset).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "a DataFrame of Spark Connect can not be fed: its client has no SparkContext",
                "Start the program with spark-submit (or a master URL) instead of a remote (sc://) session.",
            )
        args = self._merged(*_USED)
        if args.epochs < 1:
            raise ConfigError(f"epochs is {args.epochs}", "Use 1 or more.")
        sc = dataset.sparkSession.sparkContext
        folders = {name: self._folder(getattr(args, name), sc) for name in ("export_dir", "model_dir")}
        vars(args).update(folders)
        self._train(sc, _rows(dataset, args.input_mapping), args)
        model = self._copyValues(TFModel(self.args))
        model._set(**folders)
        if args.inference_mapping is not None:
            model.setInputMapping(args.inference_mapping)
        return model  # type: ignore[no-any-return]

    def _train(self, sc: Any, rows: Any, args: Namespace) -> None:
        """One cluster from start to end.

        Raises:
            TfosError: whatever ended it; nothing of it runs then.
        """
        # A stop that this fit asks of its own cluster must not reach later ones that share the caller's options.
        cancellation = Cancellation()
        options = replace(self.options, num_epochs=args.epochs, cancellation=cancellation)
        with self.options.cancellation.heard_by(cancellation.request), _one_cluster:
            started = cluster.run(
                sc,
                self.train_fn,
                args if self.args.argv is None else self.args.argv,
                args.cluster_size,
                args.num_ps,
                args.tensorboard,
                InputMode.SPARK,
                driver_ps_nodes=args.driver_ps_nodes,
                master_node=args.master_node,
                options=options,
            )
            try:
                started.train(rows, args.epochs, args.feed_timeout, final=True)
            except BaseException as exc:
                # Nodes that still wait for rows would keep shutdown waiting.
                cancellation.request(f"fit() failed: {exc}")
                with contextlib.suppress(TfosError):
                    started.shutdown(timeout=_GONE_S)
                raise
            started.shutdown(grace_secs=args.grace_secs)

    def _folder(self, path: str | None, sc: Any) -> str | None:
        """A folder as the function and the fitted model both find it: relative ones start on the driver, not on each executor."""
        if path is None:
            return None
        path = path.replace("{fit}", uuid.uuid4().hex[:12])
        if has_scheme(path) or path.startswith(("/", "file:/")):
            return path
        base = self.options.base_dir or str(Path.cwd())
        return absolute_path(path, default_fs=default_fs(sc), working_dir=base).removeprefix("file://")

    def write(self) -> StageWriter:
        """Spark ML's writer for this estimator, its function and its arguments."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Spark ML's reader; what it reads is unpickled, so load only what you trust."""
        return StageReader(cls)

    def _content(self) -> dict[str, Any]:
        defaults = ClusterOptions()
        changed = {name: getattr(self.options, name) for name in _SAVED_OPTIONS}
        changed = {name: value for name, value in changed.items() if value != getattr(defaults, name)}
        name = getattr(self.train_fn, "__qualname__", repr(self.train_fn))
        return {"args": pack_args(self.args), "function": pack((self.train_fn, changed), name)}

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Self:
        train_fn, options = unpack(content["function"])
        return cls(train_fn, unpack_args(content["args"]), options=ClusterOptions(**options))


def _rows(df: Any, mapping: Mapping[str, str]) -> Any:
    check_columns(df, mapping, "input_mapping")
    names = sorted(mapping or df.columns)
    return df.select(*(vector_to_array(df, name, "float32").alias(name) if is_vector(df, name) else quoted(name) for name in names))
