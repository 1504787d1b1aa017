"""Rows through saved models on real executors: every kind of model, every kind of column, and what must not go wrong."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from testbed import answer_nodes, saved_models
from testbed.standalone import StandaloneCluster

from tfos_core import events
from tfos_core.cluster import run as run_cluster
from tfos_core.errors import ConfigError, InterruptedRunError, TfosError
from tfos_core.exit_codes import exit_code_of
from tfos_core.jobplan import DataPlan, FunctionRef, InferPlan, JobPlan
from tfos_core.options import ClusterOptions
from tfos_core.saved_model import InferenceSettings, infer_dataframe
from tfos_core.shim.answering import answer
from tfos_core.shim.result import Progress
from tfos_core.shim.work import Engine, Work

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import RunLine

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_models.build(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def spark(sc: SparkContext) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    yield SparkSession(sc)


class Answering:
    """`tfos infer` on the context of the module: what the driver shim does between the start of Spark and its end."""

    def __init__(self, spark: SparkSession, folder: Path, models: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.models = models
        self.events: list[events.Event] = []
        self.progress = Progress()
        self.options = ClusterOptions(on_event=self.events.append, gpus=0)
        self.rows: Any = None

    def __call__(
        self, rows: Any, signature: str = "serving_default", *, function: FunctionRef | None = None, **changes: Any
    ) -> Path:
        """Answer the rows; the folder of the output."""
        settings: dict[str, Any] = {"output": str(self.folder / "out"), "export_dir": str(self.models / "module")}
        infer = InferPlan(**settings | {"signature_def_key": signature} | changes)
        source.rows = rows
        plan = JobPlan(
            run_id="answers-1",
            name="answers",
            run_folder=str(self.folder),
            channel=None,
            entrypoint=function,
            args={},
            input_mode="spark",
            num_nodes=2,
            data=DataPlan(source=FunctionRef(module=__name__, function="source", shown="source")),
            infer=infer,
        )
        engine = Engine(start_spark=lambda _: self.spark, run_cluster=run_cluster)
        self.progress = Progress()
        work = Work(plan=plan, engine=engine, spark=self.spark, options=self.options, progress=self.progress)
        answer(work, infer, argparse.Namespace())
        return Path(infer.output)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows in, out and bad of the result."""
        result = self.progress.result(None, run_folder=str(self.folder), started=0).inference
        assert result is not None
        return result["rows_in"], result["rows_out"], result["rows_bad"]

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Rows of a Parquet folder that says that it is complete."""
        assert (path / "_SUCCESS").exists()
        return [row.asDict(recursive=True) for row in self.spark.read.parquet(str(path)).collect()]


def source(spark: SparkSession, args: Any) -> Any:
    """`data.source` of the tests' specs."""
    return source.rows  # type: ignore[attr-defined]


@pytest.fixture
def answering(spark: SparkSession, tmp_path: Path, models: Path) -> Answering:
    return Answering(spark, tmp_path, models)


def numbers(spark: SparkSession, count: int = 10, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("id", "cast(id as double) as a")


#: Model -> its output.
KINDS = {
    "keras3": "output_0",
    "keras3.keras": "output_0",
    "tf_keras": "output_0",
    "tf_keras_saved": "y",
    "tf_keras.keras": "output_0",
    "tf1": "y",
    "module": "y",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_gives_what_its_weights_say(kind: str, spark: SparkSession, models: Path) -> None:
    df = spark.createDataFrame([(i, [float(i), 1.0, 0.5]) for i in range(300)], "id long, v array<float>").repartition(3)
    settings = InferenceSettings(export_dir=str(models / kind), output_mapping={KINDS[kind]: "y"}, keep=("id",), batch_size=64)
    found = {row.id: row.y for row in infer_dataframe(df, settings).collect()}
    assert found == {i: [pytest.approx(i + 2 + 1.5 + 1)] for i in range(300)}


def test_scalars_of_any_number_type_go_where_they_fit(spark: SparkSession, models: Path) -> None:
    df = spark.createDataFrame([(1, 2), (300, -4)], "p int, q long").selectExpr("cast(p as decimal(9,2)) as a", "q as b")
    rows = infer_dataframe(df, InferenceSettings(export_dir=str(models / "module"), signature_def_key="scalars")).collect()
    assert rows[0].asDict() == {"big": 2.0, "odd": False, "sum": 3.0, "whole": 2}
    assert list(rows[0].asDict()) == ["big", "odd", "sum", "whole"], "outputs are in the order of their names"
    assert (rows[1].big, rows[1].whole) == (600.0, -4)


def test_several_columns_are_put_side_by_side_in_the_order_of_the_mapping(spark: SparkSession, models: Path) -> None:
    df = spark.createDataFrame([(1.0, 10, True)], "c double, b int, a boolean")
    settings = InferenceSettings(export_dir=str(models / "module"), input_mapping={"b": "x", "c": "x", "a": "x"})
    assert infer_dataframe(df, settings).first().y == [10 + 2 + 3 + 1]


def test_matrices_come_flat_or_nested(spark: SparkSession, models: Path) -> None:
    settings = InferenceSettings(export_dir=str(models / "module"), signature_def_key="matrices")
    for rows, kind in (([([1.0, 2.0, 3.0, 4.0],)], "m array<double>"), ([([[1, 2], [3, 4]],)], "m array<array<int>>")):
        row = infer_dataframe(spark.createDataFrame(rows, kind), settings).first()
        assert (row.t, row.trace) == ([[1.0, 3.0], [2.0, 4.0]], 5.0)


def test_strings_and_bytes_arrive_as_they_are(spark: SparkSession, models: Path) -> None:
    settings = InferenceSettings(export_dir=str(models / "module"), signature_def_key="strings")
    assert infer_dataframe(spark.createDataFrame([("\u00e9a",)], "s string"), settings).first().asDict() == {
        "length": 3,
        "upper": "\u00e9A",
    }
    raw = spark.createDataFrame([(bytearray(b"\xff\x00a"),)], "s binary")
    row = infer_dataframe(raw, replace(settings, binary_outputs=("upper",))).first()
    assert (bytes(row.upper), row.length) == (b"\xff\x00A", 3)


def test_rows_of_different_lengths_are_called_in_runs_and_stay_in_order(spark: SparkSession, models: Path) -> None:
    lengths = [1, 1, 3, 3, 3, 0, 2, 1]
    df = spark.createDataFrame([(i, [float(i)] * n) for i, n in enumerate(lengths)], "id int, v array<float>").coalesce(1)
    settings = InferenceSettings(export_dir=str(models / "module"), signature_def_key="sequences", keep=("id",))
    rows = infer_dataframe(df, settings).collect()
    assert [(row.id, row.n, row.twice) for row in rows] == [(i, n, [2.0 * i] * n) for i, n in enumerate(lengths)]


def test_a_model_of_a_fixed_batch_gets_it_and_gives_one_result_per_row(spark: SparkSession, models: Path) -> None:
    df = numbers(spark, 10, 1)
    settings = InferenceSettings(export_dir=str(models / "module"), signature_def_key="four", keep=("id",))
    assert [(row.id, row.rank) for row in infer_dataframe(df, settings).collect()] == [(i, i % 4) for i in range(10)]


def test_kept_columns_of_any_type_are_untouched(spark: SparkSession, models: Path) -> None:
    day, second = datetime.date(2026, 11, 29), datetime.datetime(2026, 11, 29, 12, 30)  # noqa: DTZ001 - Spark gives such
    row = (1.5, "t", bytearray(b"\xff"), day, second, None, {"k": [1, None]}, [("x", 1)])
    kind = "a double, s string, b binary, d date, t timestamp, n int, m map<string, array<int>>, l array<struct<p: string, q: int>>"
    df = spark.createDataFrame([row] * 3, kind).selectExpr("*", "array(1, 2) as never_null", "cast(t as timestamp_ntz) as ntz")
    names = tuple(name for name in df.columns if name != "a")
    found = infer_dataframe(df, InferenceSettings(export_dir=str(models / "module"), signature_def_key="fussy", keep=names))
    assert [found.schema[name].dataType for name in names] == [df.schema[name].dataType for name in names]
    assert found.select(*names).collect() == df.select(*names).collect()


def test_ml_vectors_are_arrays_of_numbers(spark: SparkSession, models: Path) -> None:
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(Vectors.dense([1.0, 1.0, 1.0]),), (Vectors.sparse(3, {1: 5.0}),)], ["x"])
    assert [row.y for row in infer_dataframe(df, InferenceSettings(export_dir=str(models / "module"))).collect()] == [[7.0], [11.0]]


@pytest.mark.parametrize(
    ("changes", "text", "hint"),
    [
        ({"export_dir": "nothing"}, "no signatures", "export"),
        ({"signature_def_key": "scalar"}, "no signature 'scalar'", "'scalars', 'sequences', 'serving_default', 'strings'"),
        ({"export_dir": "tf1", "tag_set": "train"}, "tag_set 'train'", "'gpu,serve'"),
        ({"export_dir": "tf1", "tag_set": "serve, gpu"}, "no signature 'serving_default'", "'other'"),
        ({"input_mapping": {"a": "x"}, "output_mapping": {"z": "b"}}, "'z'", "y (float32, [?, 1])"),
        ({"input_mapping": {"a": "in"}}, "'in'", "x (float32, [?, 3])"),
        ({"input_mapping": {"nope": "x"}}, "'nope'", "'a', 'id'"),
        ({"keep": ("nope",)}, "'nope'", "'a', 'id'"),
        ({"signature_def_key": "strings", "input_mapping": {"a": "s"}}, "strings or bytes", "cast"),
        ({"signature_def_key": "total"}, "one value for all rows", "y (float32, [?])"),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(
    changes: dict[str, Any], text: str, hint: str, spark: SparkSession, models: Path
) -> None:
    settings: dict[str, Any] = {"export_dir": "module"} | changes
    settings["export_dir"] = str(models / settings["export_dir"])
    with pytest.raises(ConfigError) as caught:
        infer_dataframe(numbers(spark), InferenceSettings(**settings))
    assert text in caught.value.message
    assert hint in f"{caught.value.message} {caught.value.hint}"


def test_bad_rows_go_to_their_own_folder_with_the_reason(answering: Answering) -> None:
    rows = answering.spark.createDataFrame(
        [(i, None if i == 3 else 200.0 if i in (17, 18) else float(i), f"t{i}") for i in range(40)], "id int, a double, t string"
    ).repartition(3)
    bad_rows = answering.folder / "bad"
    out = answering(rows, "fussy", keep=("id",), bad_rows=str(bad_rows), batch_size=16)
    good = {row["id"]: row["root"] for row in answering.read(out)}
    assert good == {i: pytest.approx(math.sqrt(i), rel=1e-6) for i in range(40) if i not in (3, 17, 18)}
    bad = {row["id"]: row for row in answering.read(bad_rows)}
    assert set(bad) == {3, 17, 18}
    assert bad[3]["tfos_reason"] == "column 'a' is null"
    assert "too large" in bad[17]["tfos_reason"]
    assert (bad[17]["a"], bad[17]["t"]) == (200.0, "t17"), "a bad row has all its columns"
    assert answering.counts == (40, 37, 3)
    assert isinstance(answering.events[-1], events.InferFinished)


def test_the_bad_rows_of_one_run_are_not_left_for_the_next(answering: Answering) -> None:
    bad_rows = str(answering.folder / "bad")
    answering(answering.spark.createDataFrame([(500.0,)], "a double"), "fussy", bad_rows=bad_rows)
    assert answering.counts == (1, 0, 1)
    out = answering(numbers(answering.spark), "fussy", bad_rows=bad_rows, output_mode="overwrite")
    assert answering.read(Path(bad_rows)) == []
    assert len(answering.read(out)) == 10


def test_a_rejected_row_ends_the_job_and_is_named_and_nothing_is_written(answering: Answering) -> None:
    rows = answering.spark.createDataFrame([(i, 500.0 if i == 30 else 1.0) for i in range(50)], "id int, a double").coalesce(1)
    with pytest.raises(TfosError, match=r"row 30 of partition 0 \(id=30, a=500.0\) can not be computed.*too large") as caught:
        answering(rows, "fussy", keep=("id",))
    assert exit_code_of(caught.value) == 1
    assert "infer.bad_rows" in str(caught.value.hint)
    assert list(answering.folder.iterdir()) == []


def test_an_output_that_exists_is_refused_before_any_model_runs(answering: Answering) -> None:
    (answering.folder / "out").mkdir()
    with pytest.raises(ConfigError, match=r"out exists \(infer.output.path\)") as caught:
        answering(None, export_dir="/no/such/model")
    assert "overwrite or append" in str(caught.value.hint)


def test_overwrite_replaces_at_the_end_and_append_adds(answering: Answering) -> None:
    out = answering(numbers(answering.spark, 10), "fussy", keep=("id",))
    with pytest.raises(TfosError, match="too large"):
        answering(
            answering.spark.createDataFrame([(1, 500.0)], "id long, a double"), "fussy", keep=("id",), output_mode="overwrite"
        )
    assert len(answering.read(out)) == 10, "a failure leaves the old output"
    answering(numbers(answering.spark, 4), "fussy", keep=("id",), output_mode="overwrite")
    assert sorted(row["id"] for row in answering.read(out)) == [0, 1, 2, 3]
    answering(numbers(answering.spark, 3), "fussy", keep=("id",), output_mode="append")
    assert sorted(row["id"] for row in answering.read(out)) == [0, 0, 1, 1, 2, 2, 3]
    assert [path.name for path in answering.folder.iterdir()] == ["out"]


def test_the_output_may_take_the_place_of_the_input(answering: Answering) -> None:
    place = answering.folder / "out"
    numbers(answering.spark, 10).write.parquet(str(place))
    answering(answering.spark.read.parquet(str(place)), "fussy", keep=("id", "a"), output_mode="overwrite")
    assert {row["id"] for row in answering.read(place)} == set(range(10))


@pytest.mark.parametrize("format_", ["json", "csv", "orc", "tfrecord"])
def test_results_are_written_in_the_format_asked_for(format_: str, answering: Answering) -> None:
    out = answering(numbers(answering.spark, 10), "fussy", keep=("id",), output_format=format_)
    assert answering.counts == (10, 10, 0)
    reader = answering.spark.read.options(header=True, inferSchema=True)
    if format_ == "tfrecord":
        from tfos_core import tfrecords

        rows = tfrecords.load_tfrecords(answering.spark, str(out)).collect()
    else:
        rows = reader.format(format_).load(str(out)).collect()
    assert {row.id: row.root for row in rows} == {i: pytest.approx(math.sqrt(i), rel=1e-5) for i in range(10)}


def test_a_format_that_can_not_hold_the_columns_is_a_spec_error(answering: Answering) -> None:
    rows = answering.spark.createDataFrame([([1.0, 2.0, 3.0],)], "x array<double>")
    with pytest.raises(ConfigError, match="can not be written as csv") as caught:
        answering(rows, output_format="csv")
    assert "parquet" in str(caught.value.hint)
    assert list(answering.folder.iterdir()) == []


def test_no_rows_and_empty_partitions_are_fine(answering: Answering) -> None:
    out = answering(numbers(answering.spark, 0, 3), "fussy", keep=("id",))
    assert answering.read(out) == []
    assert answering.counts == (0, 0, 0)
    assert len(answering.read(answering(numbers(answering.spark, 1, 4), "fussy", output_mode="overwrite"))) == 1


def test_a_model_that_loses_rows_is_an_error_at_once(answering: Answering) -> None:
    with pytest.raises(TfosError, match="9 results for 10 rows: the output 'y'") as caught:
        answering(numbers(answering.spark, 10, 1), "loses", bad_rows=str(answering.folder / "bad"))
    assert exit_code_of(caught.value) == 6
    assert list(answering.folder.iterdir()) == []


def test_values_that_a_type_can_not_hold_are_rejected_not_wrapped(answering: Answering) -> None:
    rows = answering.spark.createDataFrame([(i, i) for i in (1, 255, 256, -1, 0)], "id int, a int").coalesce(1)
    bad_rows = answering.folder / "bad"
    out = answering(rows, "pixels", keep=("id",), bad_rows=str(bad_rows))
    assert [(row["id"], row["y"]) for row in answering.read(out)] == [(1, 1), (255, 255)]
    reasons = {row["id"]: row["tfos_reason"] for row in answering.read(bad_rows)}
    assert "uint8 can not hold" in reasons[256]
    assert "largest that Spark's bigint holds" in reasons[0]


def test_a_stop_ends_the_job_and_leaves_nothing(answering: Answering) -> None:
    def stop_at_once(event: events.Event) -> None:
        if isinstance(event, events.InferProgress):
            answering.options.cancellation.request("Ctrl-C")

    answering.options = replace(answering.options, on_event=stop_at_once)
    rows = numbers(answering.spark, 20_000, 40)
    with pytest.raises(InterruptedRunError, match="Ctrl-C"):
        answering(rows, "fussy", batch_size=1, bad_rows=str(answering.folder / "bad"))
    assert list(answering.folder.iterdir()) == []


def test_a_worker_that_dies_costs_no_row(answering: Answering, tmp_path: Path) -> None:
    marker = tmp_path.parent / f"{tmp_path.name}-died"
    rows = numbers(answering.spark, 100, 4).mapInArrow(answer_nodes.DieOnce(str(marker)).__call__, "id long, a double")
    out = answering(rows, "fussy", keep=("id",))
    assert sorted(row["id"] for row in answering.read(out)) == list(range(100))
    assert answering.counts == (100, 100, 0)
    assert marker.exists()


def test_the_example_of_the_page_gives_halves(
    spark: SparkSession, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "inference.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "infer_dataframe" in block)
    (tmp_path / "models").symlink_to(models)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"df": numbers(spark, 4)}
    exec(block, names)
    assert [(row.id, row.b) for row in names["answers"].collect()] == [(i, i / 2) for i in range(4)]


ANSWER = FunctionRef(module="testbed.answer_nodes", function="answer", shown="answer_nodes.py:answer")


def test_a_program_on_nodes_answers_rows(answering: Answering) -> None:
    out = answering(numbers(answering.spark, 30, 4), function=ANSWER, export_dir=None)
    rows = answering.read(out)
    assert {row["a"]: row["square"] for row in rows} == {float(i): float(i * i) for i in range(30)}
    assert {row["batch"] for row in rows} <= {1, 7}
    assert answering.counts == (30, 30, 0)
    assert isinstance(answering.events[-1], events.InferFinished)


def test_a_program_that_gives_too_few_results_leaves_no_output(answering: Answering) -> None:
    function = replace(ANSWER, function="answer_too_few")
    with pytest.raises(TfosError, match="9 results for 10 rows") as caught:
        answering(numbers(answering.spark, 40, 2), function=function, export_dir=None)
    assert exit_code_of(caught.value) == 6
    assert list(answering.folder.iterdir()) == []


def test_the_command_ships_the_model_and_tells_its_counts(
    run_line: RunLine, models: Path, standalone: StandaloneCluster, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id,a\n" + "".join(f"{i},{i}.0\n" for i in range(20)))
    spec = tmp_path / "infer.yaml"
    spec.write_text(
        "name: answers\nnum_executors: 1\ndata: {path: rows.csv, options: {header: true, inferSchema: true}}\n"
        f"infer: {{export_dir: {models / 'module'}, signature_def_key: fussy, keep: [id],\n"
        "        output: {path: out, format: json}}\n"
    )
    outcome = run_line(["tfos", "infer", str(spec), "--master", standalone.url, "--json"], fresh=True, timeout_s=120)
    found = [json.loads(line) for line in outcome.stdout.splitlines()]
    kinds = [event["event"] for event in found]
    assert kinds[0] == "submitted"
    assert {"infer_progress", "infer_finished"} <= set(kinds)
    assert found[-1]["inference"] | {"partitions": 1} == {
        "rows_in": 20,
        "rows_out": 20,
        "rows_bad": 0,
        "partitions": 1,
        "output": str(tmp_path / "out"),
        "bad_rows": None,
    }
    lines = "".join(file.read_text() for file in sorted((tmp_path / "out").glob("part-*")))
    assert {row["id"] for row in map(json.loads, lines.splitlines())} == set(range(20))
    again = run_line(["tfos", "infer", str(spec)], 2)
    assert "exists (infer.output.path" in again.stderr
