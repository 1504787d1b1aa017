"""Pipelines of Spark ML with stages that train and predict: the examples of docs/pipelines.md, and what they do not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import nodes, pipeline_nodes

from tfos_core.errors import ConfigError, NodeFailedError
from tfos_core.pipeline import TFEstimator, TFModel

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
DIGITS, SAVING, VALIDATION = range(3)


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    yield SparkSession(sc)


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(float(i), i, f"row {i}") for i in range(40)], "x float, n long, s string").repartition(4)


def example(number: int, folder: Path) -> str:
    """A block of the documentation that writes into `folder`."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    return str(blocks[number]).replace("/shared/", f"{folder}/")


def test_the_digits_in_a_pipeline_are_as_good_as_the_training_said(
    spark: SparkSession, nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    printed: list[str] = []
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    block = example(DIGITS, tmp_path).replace('keras="legacy"', 'keras="legacy", on_output=told')
    exec(block, names | {"told": lambda node, lines: printed.extend(lines)}, names)
    (said,) = re.findall(r"test accuracy ([0-9.]+) \((\d+) of (\d+) images\)", "\n".join(printed))
    assert names["accuracy"] == pytest.approx(int(said[1]) / int(said[2]), abs=1e-9)
    assert names["accuracy"] > 0.9

    exec(example(SAVING, tmp_path), names)
    assert names["again"].columns == ["label", "probabilities", "prediction"]
    evaluator = names["MulticlassClassificationEvaluator"](labelCol="label", metricName="accuracy")
    assert evaluator.evaluate(names["again"]) == names["accuracy"]


@pytest.mark.slow
def test_cross_validation_finds_the_better_parameter(spark: SparkSession, nothing_left: None, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__", "pipeline": __import__("tfos_core").pipeline}
    exec(example(VALIDATION, tmp_path), names)
    best = names["best"]
    assert isinstance(best, TFModel)
    row = best.transform(names["parabola"].where("x = 0.5")).first()
    assert row.y == 0.25
    assert row.prediction == pytest.approx(0.25, abs=1e-4)
    # Two folds with two values, and the best one over all rows: each has its own model.
    assert len(list(tmp_path.glob("polynomial-*/saved_model.pb"))) == 5


def test_rows_arguments_and_parameters_reach_the_function(spark: SparkSession, nothing_left: None, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    rows = [(i, Vectors.dense([i, 0.5]), f"row {i}") for i in range(6)]
    df = spark.createDataFrame(rows, ["n", "Vector", "s"]).repartition(2)
    estimator = (
        TFEstimator(pipeline_nodes.note_rows, {"folder": str(tmp_path), "rate": 0.25, "batch_size": 4})
        .setInputMapping({"n": "second", "Vector": "first"})
        .setClusterSize(2)
        .setEpochs(2)
        .setExportDir(str(tmp_path / "{fit}" / "model"))
    )
    model = estimator.fit(df)
    told = [notes[-1] for notes in nodes.notes(tmp_path).values()]
    assert sorted(row for note in told for row in note["rows"]) == sorted([[[float(i), 0.5], i] for i in range(6)] * 2)
    export = told[0]["told"].pop("export_dir")
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/[0-9a-f]+/model", export)
    assert told[0]["num_epochs"] == 2
    assert told[0]["told"] == {
        "rate": 0.25,
        "batch_size": 4,
        "epochs": 2,
        "input_mapping": {"n": "second", "Vector": "first"},
    }
    assert (model.getExportDir(), model.getInputMapping()) == (export, {"n": "second", "Vector": "first"})


@pytest.mark.slow
def test_a_second_fit_replaces_the_model_also_for_workers_that_know_the_first(
    numbers: DataFrame, nothing_left: None, tmp_path: Path
) -> None:
    estimator = (
        TFEstimator(pipeline_nodes.export_constant, {})
        .setInputMapping({"x": "x"})
        .setClusterSize(2)
        .setExportDir(str(tmp_path / "model"))
    )
    for steps in (1, 2):
        model = estimator.fit(numbers, {estimator.steps: steps})
        result = model.setOutputMapping({"b": "sum", "a": "minus"}).transform(numbers)
        # Outputs in the order of their tensors.
        assert result.columns == ["minus", "sum"]
        assert sorted((row.minus, row["sum"]) for row in result.collect()) == sorted((-float(i), i + steps) for i in range(40))
    kept = model.setKeep(["*"]).setOutputMapping({"b": "sum"}).transform(numbers)
    assert kept.columns == ["x", "n", "s", "sum"]
    assert sorted((row.n, row.s, row["sum"]) for row in kept.collect()) == [(i, f"row {i}", i + 2.0) for i in range(40)]
    dotted = numbers.select(numbers.x.alias("x.1"))
    row = model.copy().setInputMapping({"x.1": "x"}).setKeep(["x.1"]).transform(dotted).where("`x.1` = 5").first()
    assert row.asDict() == {"x.1": 5.0, "sum": 7.0}

    model.write().save(str(tmp_path / "saved"))
    loaded = TFModel.load(str(tmp_path / "saved"))
    assert (loaded.uid, loaded.extractParamMap(), loaded.args) == (model.uid, model.extractParamMap(), model.args)
    assert loaded.transform(numbers).count() == 40


def test_what_can_not_be_fed_ends_before_or_with_the_cluster(numbers: DataFrame, nothing_left: None) -> None:
    estimator = TFEstimator(pipeline_nodes.fail_to_train, ["--rate", "0.5"]).setClusterSize(2)
    with pytest.raises(ConfigError, match="names 'y', but the columns of the DataFrame are x, n, s"):
        estimator.copy().setInputMapping({"y": "y"}).fit(numbers)
    with pytest.raises(ConfigError, match="epochs is 0"):
        estimator.copy().setEpochs(0).fit(numbers)
    with pytest.raises(NodeFailedError, match=r"args \['--rate', '0.5'\], argv \[.*'--rate', '0.5'\]"):
        estimator.fit(numbers)
    # Nothing of the failed cluster is in the way of the next one.
    with pytest.raises(NodeFailedError, match="no such rate"):
        TFEstimator(fail_by_value(), {}).setClusterSize(2).fit(numbers)


def test_a_model_without_a_saved_model_says_what_is_missing(numbers: DataFrame) -> None:
    with pytest.raises(ConfigError, match="export_dir is not set; a checkpoint in model_dir"):
        TFModel({}).setModelDir("/checkpoints").transform(numbers)
    with pytest.raises(ConfigError, match="keep names 'y'"):
        TFModel({"export_dir": "/nowhere"}).setKeep(["y"]).transform(numbers)


def test_estimators_come_back_with_function_arguments_and_options(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, Transformer
    from pyspark.ml.feature import SQLTransformer

    from tfos_core.options import ClusterOptions

    options = ClusterOptions(keras="legacy", environment={"A": "b"}, secrets={"TOKEN": "hidden"})
    estimator = TFEstimator(pipeline_nodes.note_rows, {"rate": 0.1, "sizes": (1, 2)}, options=options)
    estimator.setInputMapping({"x": "x"}).setMasterNode(None).setFeedTimeout(5)
    by_value = TFEstimator(fail_by_value(), ["--x"])
    Pipeline(stages=[SQLTransformer(statement="SELECT * FROM __THIS__"), estimator, by_value]).save(str(tmp_path / "pipeline"))
    _, first, second = Pipeline.load(str(tmp_path / "pipeline")).getStages()
    assert (type(first), first.uid, first.train_fn) == (TFEstimator, estimator.uid, pipeline_nodes.note_rows)
    assert first.extractParamMap() == estimator.extractParamMap()
    assert (first.getMasterNode(), first.getFeedTimeout(), first.args) == (None, 5.0, estimator.args)
    assert (first.options.keras, first.options.environment, first.options.secrets) == ("legacy", {"A": "b"}, {})
    assert "hidden" not in "".join(path.read_text() for path in (tmp_path / "pipeline").rglob("part-*"))
    with pytest.raises(ValueError, match="no such rate"):
        second.train_fn(None, None)
    assert second.args == ["--x"]

    estimator.write().save(str(tmp_path / "estimator"))
    with pytest.raises(ConfigError, match=r"holds a tfos_core\.pipeline\.TFEstimator, not a TFModel"):
        TFModel.load(str(tmp_path / "estimator"))
    estimator.setEpochs(7).write().overwrite().save(str(tmp_path / "estimator"))
    assert TFEstimator.load(str(tmp_path / "estimator")).getEpochs() == 7
    assert issubclass(TFModel, Transformer)


def fail_by_value() -> Any:
    """A function that no module holds."""

    def train(args: Any, ctx: Any) -> None:
        raise ValueError("no such rate")

    return train
