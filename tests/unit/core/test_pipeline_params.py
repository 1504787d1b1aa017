"""Parameters of pipeline stages; pyspark is imported, but no JVM runs."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from tfos_core import TFCluster, pipeline
from tfos_core.errors import ConfigError
from tfos_core.pipeline import HasBatchSize, HasEpochs, Namespace, TFEstimator, TFModel, TFParams
from tfos_core.pipeline.persistence import pack, pack_args, unpack, unpack_args

#: Setter and a value for each parameter of 2022, and for those that came later.
ESTIMATOR_2022 = {
    "BatchSize": 7,
    "ClusterSize": 3,
    "DriverPSNodes": False,
    "Epochs": 2,
    "ExportDir": "/export",
    "GraceSecs": 5,
    "InputMapping": {"col": "x"},
    "MasterNode": "master",
    "ModelDir": "/model",
    "NumPS": 1,
    "Protocol": "grpc",
    "Readers": 4,
    "Steps": 10,
    "TFRecordDir": "/records",
    "Tensorboard": True,
}
MODEL_2022 = {
    "BatchSize": 7,
    "ExportDir": "/export",
    "InputMapping": {"col": "x"},
    "ModelDir": "/model",
    "OutputMapping": {"y": "col_out"},
    "SignatureDefKey": "predict",
    "TagSet": "serve,gpu",
}
NEW = {
    "FeedTimeout": 30.0,
    "InferenceMapping": {"col": "x"},
    "Keep": ["label"],
    "OutputMapping": {"y": "z"},
    "TagSet": "a",
    "SignatureDefKey": "k",
}


def train(args: Any, ctx: Any) -> None:
    """A function that can be pickled."""


def set_all(stage: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        assert getattr(stage, f"set{name}")(value) is stage
        assert getattr(stage, f"get{name}")() == value


def test_the_stages_have_every_parameter_of_2022_and_the_new_ones() -> None:
    set_all(TFEstimator(train, {}), ESTIMATOR_2022 | NEW)
    set_all(TFModel({}), MODEL_2022 | {"Keep": ["label"]})


def test_defaults_are_those_of_2022() -> None:
    estimator = TFEstimator(train, {})
    names = ("batch_size", "cluster_size", "epochs", "grace_secs", "input_mapping", "master_node", "num_ps", "readers", "steps")
    assert [estimator.getOrDefault(name) for name in names] == [100, 1, 1, 30, {}, "chief", 0, 1, 1000]
    assert estimator.getFeedTimeout() == 600
    model = TFModel({})
    assert (model.getSignatureDefKey(), model.getTagSet(), model.getBatchSize(), model.getKeep()) == (None, None, 100, [])


def test_every_name_that_the_module_lists_is_there() -> None:
    assert [name for name in pipeline.__all__ if not hasattr(pipeline, name)] == []
    with pytest.raises(AttributeError, match="HasNothing"):
        _ = pipeline.HasNothing


@pytest.mark.parametrize("mode", [TFCluster.InputMode.SPARK, 1, "spark"])
def test_the_input_mode_is_spark(mode: Any) -> None:
    assert TFEstimator(train, {}).setInputMode(mode).getInputMode() == TFCluster.InputMode.SPARK


@pytest.mark.parametrize("mode", [TFCluster.InputMode.TENSORFLOW, 0])
def test_the_other_input_mode_is_refused(mode: Any) -> None:
    with pytest.raises(ConfigError, match="feeds a DataFrame"):
        TFEstimator(train, {}).setInputMode(mode)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("InputMapping", [("a", "b")], "input_mapping"),
        ("InputMapping", {"a": 1}, "from strings to strings"),
        ("BatchSize", "many", "batch_size"),
        ("Keep", "label", "list of column names"),
        ("InputMode", "both", "input mode"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_set(name: str, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        getattr(TFEstimator(train, {}), f"set{name}")(value)


def test_a_mapping_is_a_copy() -> None:
    mapping = {"a": "b"}
    stage = TFModel({}).setInputMapping(mapping)
    mapping["c"] = "d"
    assert stage.getInputMapping() == {"a": "b"}


def test_functions_and_protocols_of_tensorflow_1_are_refused() -> None:
    with pytest.raises(ConfigError, match="export_fn"):
        TFEstimator(train, {}, train)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rdma"):
        TFEstimator(train, {}).setProtocol("rdma")


def test_a_parameter_that_was_set_wins_over_an_argument_and_an_argument_over_a_default() -> None:
    args = argparse.Namespace(rate=0.1, batch_size=64, epochs=3, steps=None)
    merged = TFEstimator(train, args).setEpochs(5).merge_args_params()
    assert (merged.rate, merged.batch_size, merged.epochs, merged.steps) == (0.1, 64, 5, 1000)
    assert args == argparse.Namespace(rate=0.1, batch_size=64, epochs=3, steps=None)


def test_a_class_of_ones_own_merges_what_it_has() -> None:
    class Own(TFParams, HasBatchSize, HasEpochs):
        def __init__(self, args: Any) -> None:
            super().__init__()
            self.args = args

    assert Own(Namespace({"a": 1})).merge_args_params() == Namespace({"a": 1})
    assert Own(Namespace({"a": 1})).setEpochs(2).merge_args_params() == Namespace({"a": 1, "epochs": 2})


def test_an_argument_that_is_no_value_of_its_parameter_is_named() -> None:
    with pytest.raises(ConfigError, match="cluster_size='two'"):
        TFEstimator(train, {"cluster_size": "two"})._merged("cluster_size")


def test_a_copy_has_its_own_parameters_and_the_same_function() -> None:
    estimator = TFEstimator(train, {"rate": 0.1}).setEpochs(2)
    copied = estimator.copy({estimator.epochs: 9})
    assert (copied.getEpochs(), estimator.getEpochs()) == (9, 2)
    assert (copied.uid, copied.train_fn, copied.args) == (estimator.uid, train, estimator.args)


def test_grids_of_spark_ml_take_the_parameters() -> None:
    from pyspark.ml.tuning import ParamGridBuilder

    estimator = TFEstimator(train, {})
    grid = ParamGridBuilder().addGrid(estimator.epochs, [1, 2]).addGrid(estimator.batch_size, [8]).build()
    assert [(estimator.copy(point).getEpochs(), estimator.copy(point).getBatchSize()) for point in grid] == [(1, 8), (2, 8)]


@pytest.mark.parametrize(
    ("args", "is_json"),
    [({"a": [1, 2.5, None, {"b": True}]}, True), (["--x", "1"], True), ({"a": (1, 2)}, False), ({"a": {1: 2}}, False)],
)
def test_saved_arguments_come_back_as_they_were(args: Any, is_json: bool) -> None:
    packed = pack_args(Namespace(args))
    assert ("json" in packed) is is_json
    back = unpack_args(packed)
    assert back == Namespace(args)
    if not is_json:
        assert type(next(iter(vars(back).values()))) is type(next(iter(args.values())))


def test_a_function_without_a_module_is_saved_with_its_code() -> None:
    rate = 3
    assert unpack(pack(lambda x: x * rate, "it"))(5) == 15


def test_what_can_not_be_saved_or_loaded_is_named() -> None:
    import threading

    with pytest.raises(ConfigError, match="an argument in tf_args can not be saved: TypeError"):
        pack_args(Namespace({"lock": threading.Lock()}))
    packed = {"pickle": "Y25vX3N1Y2hfbW9kdWxlCmYKLg==", "python": "3.99.0"}
    with pytest.raises(ConfigError, match="no_such_module") as caught:
        unpack(packed)
    assert "3.99.0" in str(caught.value.hint)
