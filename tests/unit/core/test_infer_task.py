"""What runs for a partition: calls of the model, bad rows, reports. The model is a function of the test's."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfos_core.errors import TfosError
from tfos_core.inference.report import Reporter, ReportSink, TaskReport
from tfos_core.saved_model import task as task_module
from tfos_core.saved_model.binding import Binding, InputBinding, OutputBinding
from tfos_core.saved_model.errors import ModelError, OutputCountError, RejectedError, RowRejectedError
from tfos_core.saved_model.location import ModelFiles, ModelRef
from tfos_core.saved_model.runtime import LoadedModel
from tfos_core.saved_model.signature import TensorSpec
from tfos_core.saved_model.task import BAD_COLUMN, InferTask, OnBadRow, output_schema

X = TensorSpec(name="x", dtype="float32", shape=(None,))
Y = TensorSpec(name="y", dtype="float32", shape=(None,))
BINDING = Binding(
    inputs=(InputBinding(spec=X, columns=("a",)),),
    outputs=(OutputBinding(spec=Y, column="b", type=pa.float32()),),
    keep=("id",),
)
FIELDS = {"id": pa.field("id", pa.int64()), "a": pa.field("a", pa.float64()), "t": pa.field("t", pa.list_(pa.string()))}
FILES = ModelFiles(shown="models/mine", path="/models/mine", archive="", fingerprint="1")


class Fussy:
    """Doubles its rows, raises for a call with a row above 100, and remembers the sizes of its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def call(self, arrays: Mapping[str, Any], rows: int, outputs: Sequence[str]) -> dict[str, Any]:
        self.calls.append(rows)
        assert len(arrays["x"]) == rows
        if (arrays["x"] > 1000).any():
            raise ModelError("out of memory")
        if (arrays["x"] > 100).any():
            raise RejectedError("the model rejects it: too large")
        return {"y": arrays["x"] * 2}


class Sink:
    def __init__(self) -> None:
        self.reports: list[TaskReport] = []

    def add(self, more: tuple[TaskReport, ...]) -> None:
        self.reports += more


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Fussy:
    fussy = Fussy()
    monkeypatch.setattr(task_module, "load_model", lambda ref, **_: fussy)
    return fussy


def batch(values: list[float | None], start: int = 0) -> Any:
    ids = list(range(start, start + len(values)))
    columns = [pa.array(ids), pa.array(values, pa.float64()), pa.array([[f"t{i}"] for i in ids], pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(FIELDS.values())))


def serve(on_bad_row: OnBadRow, *batches: Any, size: int = 8, sink: Sink | None = None) -> list[dict[str, Any]]:
    schema = output_schema(BINDING, FIELDS, on_bad_row)
    ref = ModelRef(files=FILES, tags=("serve",), signature="serving_default")
    made = InferTask(
        model=ref, binding=BINDING, batch_size=size, schema=schema, on_bad_row=on_bad_row, reporter=Reporter(sink or Sink())
    )
    rows: list[dict[str, Any]] = []
    for result in made(iter(batches)):
        assert result.schema == schema
        rows += result.to_pylist()
    return rows


@pytest.mark.parametrize("how", list(OnBadRow))
def test_every_row_has_one_result_in_its_place_and_the_last_call_is_short(how: OnBadRow, model: Fussy) -> None:
    sink = Sink()
    rows = serve(how, batch([float(i) for i in range(20)]), batch([]), batch([50.0], 20), sink=sink)
    assert [(row["id"], row["b"]) for row in rows] == [(i, 2.0 * i) for i in range(20)] + [(20, 100.0)]
    assert model.calls == [8, 8, 4, 1]
    (report,) = sink.reports
    assert (report.rows, report.results, report.bad, report.error) == (21, 21, 0, None)


def test_rows_that_the_model_rejects_are_found_by_halves(model: Fussy) -> None:
    values: list[float | None] = [float(i) for i in range(16)]
    values[5], values[12] = 500.0, None
    sink = Sink()
    rows = serve(OnBadRow.KEEP, batch(values), size=16, sink=sink)
    assert [row["b"] for row in rows if row[BAD_COLUMN] is None] == [2.0 * i for i in range(16) if i not in (5, 12)]
    bad = {row["id"]: row[BAD_COLUMN] for row in rows if row[BAD_COLUMN] is not None}
    assert bad[5] == {"reason": "the model rejects it: too large", "row": {"id": 5, "a": 500.0, "t": ["t5"]}}
    assert bad[12]["reason"] == "column 'a' is null"
    assert (sink.reports[0].rows, sink.reports[0].results, sink.reports[0].bad) == (16, 14, 2)
    assert model.calls == [15, 7, 3, 4, 2, 2, 1, 1, 8]


def test_a_batch_of_bad_rows_only_is_kept_too(model: Fussy) -> None:
    rows = serve(OnBadRow.KEEP, batch([500.0, 600.0]))
    assert [row["b"] for row in rows] == [None, None]
    assert [row[BAD_COLUMN]["row"]["id"] for row in rows] == [0, 1]


def test_a_bad_row_raises_or_is_reported_with_its_place_and_values(model: Fussy) -> None:
    batches = (batch([1.0] * 10), batch([1.0, 500.0], 10))
    text = "row 11 of partition 0 (id=11, a=500.0) can not be computed: the model rejects it: too large"
    with pytest.raises(RowRejectedError) as caught:
        serve(OnBadRow.RAISE, *batches)
    assert str(caught.value) == text
    sink = Sink()
    assert len(serve(OnBadRow.REPORT, *batches, batch([1.0], 12), sink=sink)) == 10, "nothing is served after it"
    error = sink.reports[0].exception()
    assert isinstance(error, RowRejectedError)
    assert (error.message, "infer.bad_rows" in str(error.hint)) == (text, True)


def test_a_broken_model_is_not_taken_for_bad_rows(model: Fussy) -> None:
    sink = Sink()
    serve(OnBadRow.KEEP, batch([1.0, 2000.0, 3.0]), sink=sink)
    error = sink.reports[0].exception()
    assert isinstance(error, ModelError)
    assert error.message == "out of memory"
    assert model.calls == [3]


def test_a_report_and_a_sink_survive_the_way_to_the_driver() -> None:
    got: list[TaskReport] = []
    sink = ReportSink(got.append)
    report = TaskReport(partition=3, rows=2, results=1, bad=1, error=TaskReport.describe(OutputCountError("m", "h")))
    worker = pickle.loads(pickle.dumps(sink))
    sent = worker.addInPlace(worker.zero(()), (report,))
    assert (sink.addInPlace((), pickle.loads(pickle.dumps(sent))), got) == ((), [report])
    assert isinstance(report.exception(), OutputCountError)
    unknown = TaskReport(partition=0, rows=0, results=0, error=("RejectedError", "m", None))
    assert isinstance(unknown.exception(), TfosError)


class Function:
    """A signature: gives what `answer` makes of the inputs."""

    class _Tensor:
        def __init__(self, array: Any) -> None:
            self._array = array

        def numpy(self) -> Any:
            return self._array

    structured_input_signature: tuple[Any, dict[str, Any]] = ((), {})

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        return {"y": self._Tensor(self._answer(inputs["x"]))}


@pytest.fixture
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(convert_to_tensor=lambda array: array))


def test_a_fixed_batch_is_filled_up_and_the_surplus_dropped(no_tensorflow: None) -> None:
    seen = []
    function = Function(lambda x: seen.append(len(x)) or x + 1)
    loaded = LoadedModel("m", function, None, fixed_rows=4)
    assert loaded.call({"x": np.arange(3.0)}, 3, ["y"])["y"].tolist() == [1, 2, 3]
    assert seen == [4]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda x: x[1:], "9 results for 10 rows"),
        (lambda x: x.sum(), "1 results for 10 rows"),
        (lambda x: np.zeros(11), "11 results"),
    ],
)
def test_another_number_of_results_than_rows_is_an_error(answer: Any, text: str, no_tensorflow: None) -> None:
    with pytest.raises(OutputCountError, match=text) as caught:
        LoadedModel("models/mine", Function(answer), None).call({"x": np.arange(10.0)}, 10, ["y"])
    assert "output 'y' of the model models/mine" in caught.value.message


class ResourceExhaustedError(Exception):
    """TensorFlow's name."""


class InvalidArgumentError(Exception):
    """TensorFlow's name."""


@pytest.mark.parametrize(("error", "kind"), [(ResourceExhaustedError, ModelError), (InvalidArgumentError, RejectedError)])
def test_errors_of_the_machine_are_not_about_rows(error: type[Exception], kind: type[Exception], no_tensorflow: None) -> None:
    def fail(x: Any) -> Any:
        raise error("Graph execution error:\n\nDetected at node x\nassertion failed: [too large] [[{{node}}]]")

    with pytest.raises(kind, match=rf"{error.__name__}: assertion failed: \[too large\]"):
        LoadedModel("m", Function(fail), None).call({"x": np.zeros(1)}, 1, ["y"])
