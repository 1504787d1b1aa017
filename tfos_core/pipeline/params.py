"""The parameters of both stages: one mixin for each, as Spark ML has them. Importing this module imports pyspark.

Names are those of the 2022 API; `HasFeedTimeout`, `HasInferenceMapping` and `HasKeep` came later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.ml.param import Param, Params, TypeConverters

from tfos_core.errors import ConfigError
from tfos_core.pipeline.namespace import Namespace
from tfos_core.topology import InputMode

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
    "TFParams",
    "TFTypeConverters",
)

_Accessor = Callable[..., Any]


class TFTypeConverters:
    """Converters that Spark ML does not have."""

    @staticmethod
    def toDict(value: Any) -> dict[str, str]:  # noqa: N802 - named as Spark's are
        """A plain dict from strings to strings."""
        if isinstance(value, dict) and all(isinstance(item, str) for pair in value.items() for item in pair):
            return dict(value)
        raise TypeError(f"{value!r} is not a dict from strings to strings")

    @staticmethod
    def toInputMode(value: Any) -> str:  # noqa: N802
        """`InputMode.SPARK`, also as 1 or `spark`; nothing else can feed a DataFrame."""
        if value == 1 or value == InputMode.SPARK:
            return str(InputMode.SPARK)
        if value == 0 or value == InputMode.TENSORFLOW:
            raise ConfigError(
                "input_mode is tensorflow, but fit() feeds a DataFrame",
                "Use InputMode.SPARK; for nodes that read files themselves use TFCluster.run or tfos train.",
            )
        raise TypeError(f"{value!r} is no input mode")

    @staticmethod
    def toProtocol(value: Any) -> str:  # noqa: N802
        """`grpc`: TensorFlow 2 speaks nothing else."""
        if value == "grpc":
            return "grpc"
        raise ConfigError(f"protocol is {value!r}, but TensorFlow 2 speaks grpc only", "Leave protocol out.")

    @staticmethod
    def toNames(value: Any) -> list[str]:  # noqa: N802
        """A list of strings."""
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return list(value)
        raise TypeError(f"{value!r} is not a list of column names")


class _Optional:
    """A converter that lets None through, which Spark's own refuse when they read a saved stage."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self.convert = convert

    def __call__(self, value: Any) -> Any:
        return None if value is None else self.convert(value)


def _param(name: str, doc: str, convert: Callable[[Any], Any]) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=_Optional(convert))


def _accessors(name: str) -> tuple[_Accessor, _Accessor]:
    """The setter, which returns the stage, and the getter."""

    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def get_value(self: Any) -> Any:
        return self.getOrDefault(name)

    set_value.__doc__, get_value.__doc__ = f"Set `{name}`; returns this stage.", f"`{name}`, or its default."
    return set_value, get_value


class TFParams(Params):  # type: ignore[misc]
    """Arguments of the function together with the parameters of the stage."""

    args: Any = None

    def merge_args_params(self) -> Namespace:
        """The arguments, and every parameter under its name: a parameter that was set wins, then an argument, then a default."""
        merged = Namespace({} if self.args is None else self.args)
        values = vars(merged)
        for param in self.params:
            if self.isSet(param) or (values.get(param.name) is None and self.hasDefault(param)):
                values[param.name] = self.getOrDefault(param)
        return merged

    def _merged(self, *used: str) -> Namespace:
        """`merge_args_params`, with the values of these parameters as their converters have them.

        Raises:
            ConfigError: an argument with the name of one of them has a value that the parameter can not have.
        """
        merged = self.merge_args_params()
        values = vars(merged)
        for name in used:
            value = values.get(name)
            try:
                values[name] = self.getParam(name).typeConverter(value)
            except TypeError as exc:
                raise ConfigError(
                    f"tf_args has {name}={value!r}: {exc}",
                    "It has the name of a parameter: set the parameter, which wins, or rename the argument.",
                ) from exc
        return merged


class HasBatchSize(Params):  # type: ignore[misc]
    batch_size = _param("batch_size", "rows in a batch", TypeConverters.toInt)
    setBatchSize, getBatchSize = _accessors("batch_size")


class HasClusterSize(Params):  # type: ignore[misc]
    cluster_size = _param("cluster_size", "nodes in the cluster, one on each executor", TypeConverters.toInt)
    setClusterSize, getClusterSize = _accessors("cluster_size")


class HasEpochs(Params):  # type: ignore[misc]
    epochs = _param("epochs", "how often the DataFrame is fed", TypeConverters.toInt)
    setEpochs, getEpochs = _accessors("epochs")


class HasFeedTimeout(Params):  # type: ignore[misc]
    feed_timeout = _param("feed_timeout", "seconds without any row consumed on a node", TypeConverters.toFloat)
    setFeedTimeout, getFeedTimeout = _accessors("feed_timeout")


class HasGraceSecs(Params):  # type: ignore[misc]
    grace_secs = _param("grace_secs", "seconds that serving nodes may go on after the others have ended", TypeConverters.toInt)
    setGraceSecs, getGraceSecs = _accessors("grace_secs")


class HasInputMapping(Params):  # type: ignore[misc]
    input_mapping = _param("input_mapping", "column -> tensor", TFTypeConverters.toDict)
    setInputMapping, getInputMapping = _accessors("input_mapping")


class HasInferenceMapping(Params):  # type: ignore[misc]
    inference_mapping = _param(
        "inference_mapping", "column -> tensor for the fitted model, where it is not input_mapping", TFTypeConverters.toDict
    )
    setInferenceMapping, getInferenceMapping = _accessors("inference_mapping")


class HasInputMode(Params):  # type: ignore[misc]
    input_mode = _param("input_mode", "InputMode.SPARK", TFTypeConverters.toInputMode)
    setInputMode, getInputMode = _accessors("input_mode")


class HasKeep(Params):  # type: ignore[misc]
    keep = _param("keep", "input columns that stay in the output, before the model's; ['*'] for all", TFTypeConverters.toNames)
    setKeep, getKeep = _accessors("keep")


class HasMasterNode(Params):  # type: ignore[misc]
    master_node = _param("master_node", "chief, master or None", TypeConverters.toString)
    setMasterNode, getMasterNode = _accessors("master_node")


class HasModelDir(Params):  # type: ignore[misc]
    model_dir = _param("model_dir", "folder for checkpoints; {fit} in it is another name for each fit", TypeConverters.toString)
    setModelDir, getModelDir = _accessors("model_dir")


class HasNumPS(Params):  # type: ignore[misc]
    num_ps = _param("num_ps", "parameter servers among the nodes", TypeConverters.toInt)
    driver_ps_nodes = _param("driver_ps_nodes", "run them on the driver", TypeConverters.toBoolean)
    setNumPS, getNumPS = _accessors("num_ps")
    setDriverPSNodes, getDriverPSNodes = _accessors("driver_ps_nodes")


class HasOutputMapping(Params):  # type: ignore[misc]
    output_mapping = _param("output_mapping", "tensor -> column; {} for all, under their names", TFTypeConverters.toDict)
    setOutputMapping, getOutputMapping = _accessors("output_mapping")


class HasProtocol(Params):  # type: ignore[misc]
    protocol = _param("protocol", "grpc", TFTypeConverters.toProtocol)
    setProtocol, getProtocol = _accessors("protocol")


class HasReaders(Params):  # type: ignore[misc]
    readers = _param("readers", "for the function: how many threads read", TypeConverters.toInt)
    setReaders, getReaders = _accessors("readers")


class HasSteps(Params):  # type: ignore[misc]
    steps = _param("steps", "for the function: after how many steps it ends", TypeConverters.toInt)
    setSteps, getSteps = _accessors("steps")


class HasTensorboard(Params):  # type: ignore[misc]
    tensorboard = _param("tensorboard", "run TensorBoard beside the chief", TypeConverters.toBoolean)
    setTensorboard, getTensorboard = _accessors("tensorboard")


class HasTFRecordDir(Params):  # type: ignore[misc]
    tfrecord_dir = _param("tfrecord_dir", "for the function; nothing is written there", TypeConverters.toString)
    setTFRecordDir, getTFRecordDir = _accessors("tfrecord_dir")


class HasExportDir(Params):  # type: ignore[misc]
    export_dir = _param("export_dir", "folder of the SavedModel; {fit} in it is another name for each fit", TypeConverters.toString)
    setExportDir, getExportDir = _accessors("export_dir")


class HasSignatureDefKey(Params):  # type: ignore[misc]
    signature_def_key = _param(
        "signature_def_key", "signature of the SavedModel; None for serving_default", TypeConverters.toString
    )
    setSignatureDefKey, getSignatureDefKey = _accessors("signature_def_key")


class HasTagSet(Params):  # type: ignore[misc]
    tag_set = _param("tag_set", "tags of the SavedModel, separated by commas; None for serve", TypeConverters.toString)
    setTagSet, getTagSet = _accessors("tag_set")
