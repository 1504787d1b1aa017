"""What Spark runs for every partition: Arrow in, the model, Arrow out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfos_core.column_names import named
from tfos_core.errors import TfosError
from tfos_core.inference.report import Reporter, TaskReport
from tfos_core.saved_model.binding import Binding, OutputBinding
from tfos_core.saved_model.coerce import Piece, Rejected, prepare
from tfos_core.saved_model.errors import RejectedError, RowRejectedError
from tfos_core.saved_model.location import ModelRef
from tfos_core.saved_model.results import to_column, wrong_rows
from tfos_core.saved_model.runtime import LoadedModel, load_model

__all__ = ("BAD_COLUMN", "InferTask", "OnBadRow", "output_schema")

Array = npt.NDArray[Any]

#: Null for a good row, else `reason` and `row`.
BAD_COLUMN = "tfos_bad"
_HINT = "Set infer.bad_rows to a path, and such rows go there instead of ending the job."
_SHOWN_VALUES = 4
_SHOWN_CHARACTERS = 60


class OnBadRow(StrEnum):
    """What a row that can not be computed does.

    `RAISE`: the task fails, and Spark tries again before the query does. `REPORT`: the task ends well and tells the driver, who
    cancels the query; nothing is tried again. `KEEP`: it goes on in a column of its own.
    """

    RAISE = "raise"
    REPORT = "report"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferTask:
    """For `mapInArrow`: kept columns, then outputs, one row per row and in their order.

    Attributes:
        schema: of the output, as `output_schema` gives it.
        gpus: GPUs for TensorFlow, 0 hides all; None leaves the environment as it is.
        names: of the input's columns, where they are not those of the batches.
    """

    model: ModelRef
    binding: Binding
    batch_size: int
    schema: Any
    on_bad_row: OnBadRow = OnBadRow.RAISE
    reporter: Reporter = field(default_factory=Reporter)
    gpus: int | None = None
    names: tuple[str, ...] = ()

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Serve one partition."""
        run = _Run(self)
        try:
            for batch in named(batches, self.names):
                if batch.num_rows:
                    yield run.predict(batch)
        except TfosError as exc:
            if self.on_bad_row is OnBadRow.RAISE:
                raise
            run.error = TaskReport.describe(exc)
        self.reporter.send(run.report())


def output_schema(binding: Binding, columns: Mapping[str, Any], on_bad_row: OnBadRow) -> Any:
    """The Arrow schema of what the task gives.

    Args:
        columns: the fields of the task's input.
    """
    fields = [columns[name] for name in binding.keep]
    fields += [pa.field(one.column, one.type) for one in binding.outputs]
    if on_bad_row is OnBadRow.KEEP:
        # Null where the row is good, whatever the columns' own fields say.
        row = pa.struct([pa.field(field.name, field.type) for field in columns.values()])
        fields.append(pa.field(BAD_COLUMN, pa.struct([pa.field("reason", pa.string()), pa.field("row", row)])))
    return pa.schema(fields)


class _Run:
    """One partition while it is served."""

    def __init__(self, task: InferTask) -> None:
        self._task = task
        self._outputs = task.binding.outputs
        self._output_names = [one.spec.name for one in task.binding.outputs]
        self._model: LoadedModel | None = None
        self._place = _Place.of_task()
        self._rows = 0
        self._results = 0
        self._bad = 0
        self._load_s = 0.0
        self.error: tuple[str, str, str | None] | None = None

    def report(self) -> TaskReport:
        """What was done."""
        return TaskReport(
            partition=self._place.partition,
            stage=self._place.stage,
            rows=self._rows,
            results=self._results,
            bad=self._bad,
            load_s=round(self._load_s, 3),
            error=self.error,
        )

    def predict(self, batch: Any) -> Any:
        """The output for a batch of the input.

        Raises:
            RowRejectedError: a row can not be computed, and bad rows are not kept.
            ModelError, OutputCountError: the model can not be used.
        """
        first = self._rows
        self._rows += batch.num_rows
        model = self._loaded()
        pieces, rejected = prepare(batch, self._task.binding.inputs)
        calls = [call for piece in pieces for call in self._calls(model, piece, rejected)]
        calls, outputs = self._columns(calls, rejected)
        if rejected and not self._keeps_bad:
            row, why = min(rejected.items())
            message = f"row {first + row} of partition {self._place.partition} ({_preview(batch, row)}) can not be computed: {why}"
            raise RowRejectedError(message, None if self._task.on_bad_row is OnBadRow.RAISE else _HINT)
        self._results += sum(len(call.rows) for call in calls)
        self._bad += len(rejected)
        schema = self._task.schema
        columns = [_as(batch.column(name), schema.field(name).type) for name in self._task.binding.keep]
        if not rejected:
            bad = [pa.nulls(batch.num_rows, schema.field(BAD_COLUMN).type)] if self._keeps_bad else []
            return pa.RecordBatch.from_arrays([*columns, *outputs, *bad], schema=schema)
        places = np.full(batch.num_rows, -1)
        places[np.concatenate([call.rows for call in calls]) if calls else []] = np.arange(batch.num_rows - len(rejected))
        indices = pa.array(places, mask=places < 0)
        outputs = [output.take(indices) for output in outputs]
        return pa.RecordBatch.from_arrays([*columns, *outputs, self._bad_column(batch, rejected)], schema=schema)

    def _columns(self, calls: list[_Call], rejected: Rejected) -> tuple[list[_Call], list[Any]]:
        """The calls without rows whose results do not fit their columns, and the columns."""
        calls = _checked([one for one in self._outputs if one.spec.dtype == "uint64"], calls, rejected)
        try:
            return calls, [to_column(one, [call.results[one.spec.name] for call in calls]) for one in self._outputs]
        except pa.ArrowInvalid:
            calls = _checked([one for one in self._outputs if one.spec.dtype == "string"], calls, rejected)
            return calls, [to_column(one, [call.results[one.spec.name] for call in calls]) for one in self._outputs]

    @property
    def _keeps_bad(self) -> bool:
        return self._task.on_bad_row is OnBadRow.KEEP

    def _loaded(self) -> LoadedModel:
        if self._model is None:
            begun = time.monotonic()
            if self._task.gpus is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = self._place.visible_gpus(self._task.gpus, os.environ)
            binding = self._task.binding
            self._model = load_model(self._task.model, threads=self._place.cores, fixed_rows=binding.fixed_rows)
            self._load_s = time.monotonic() - begun
        return self._model

    def _calls(self, model: LoadedModel, piece: Piece, rejected: Rejected) -> Iterator[_Call]:
        size = self._task.binding.fixed_rows or self._task.batch_size
        for start in range(0, len(piece.rows), size):
            yield from self._call(model, piece, start, min(start + size, len(piece.rows)), rejected)

    def _call(self, model: LoadedModel, piece: Piece, start: int, stop: int, rejected: Rejected) -> Iterator[_Call]:
        """One call; when the model rejects it, halves of it, until the rows that are to blame are found."""
        arrays = {name: array[start:stop] for name, array in piece.arrays.items()}
        try:
            yield _Call(piece.rows[start:stop], model.call(arrays, stop - start, self._output_names))
        except RejectedError as exc:
            if stop - start == 1:
                rejected[int(piece.rows[start])] = str(exc)
                return
            if not self._keeps_bad and rejected:
                return  # one is enough to end the job
            middle = (start + stop) // 2
            yield from self._call(model, piece, start, middle, rejected)
            yield from self._call(model, piece, middle, stop, rejected)

    def _bad_column(self, batch: Any, rejected: Rejected) -> Any:
        kind = self._task.schema.field(BAD_COLUMN).type
        places = np.full(batch.num_rows, -1)
        bad_rows = sorted(rejected)
        places[bad_rows] = bad_rows
        indices = pa.array(places, mask=places < 0)
        reasons = pa.array([rejected.get(row) for row in range(batch.num_rows)], pa.string())
        row_kind = kind.field("row").type
        columns = [_as(batch.column(field.name), field.type).take(indices) for field in row_kind]
        is_good = pa.array(places < 0)
        rows = pa.StructArray.from_arrays(columns, fields=list(row_kind), mask=is_good)
        return pa.StructArray.from_arrays([reasons, rows], fields=list(kind), mask=is_good)


@dataclass(slots=True)
class _Call:
    rows: Array
    results: dict[str, Array]


def _checked(outputs: Sequence[OutputBinding], calls: list[_Call], rejected: Rejected) -> list[_Call]:
    """The calls without the rows whose results their columns can not hold."""
    for call in calls:
        for one in outputs:
            wrong = wrong_rows(one, call.results[one.spec.name])
            if wrong:
                rejected |= {int(call.rows[row]): why for row, why in wrong.items()}
                good = np.ones(len(call.rows), dtype=bool)
                good[list(wrong)] = False
                call.rows = call.rows[good]
                call.results = {name: values[good] for name, values in call.results.items()}
    return [call for call in calls if len(call.rows)]


def _as(column: Any, kind: Any) -> Any:
    """A column in the type that was promised; a timestamp's time zone is Spark's setting on the way in, and UTC on the way out."""
    return column if column.type == kind else column.cast(kind)


def _preview(batch: Any, row: int) -> str:
    """Some values of a row, for somebody who looks for it."""
    shown: list[str] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        text = repr(column.slice(row, 1).to_pylist()[0]) if not pa.types.is_nested(column.type) else ""
        if text and len(shown) < _SHOWN_VALUES:
            shown.append(f"{name}={text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '...'}")
    return ", ".join(shown) or f"columns {', '.join(batch.schema.names[:_SHOWN_VALUES])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a task knows of itself."""

    partition: int = 0
    stage: int = -1
    cores: int = 1
    gpus: tuple[str, ...] = ()

    @classmethod
    def of_task(cls) -> _Place:
        """Of the one that runs here."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls()
        gpu = context.resources().get("gpu")
        return cls(
            partition=context.partitionId(),
            stage=context.stageId(),
            cores=max(1, int(context.cpus())),
            gpus=tuple(gpu.addresses) if gpu is not None else (),
        )

    def visible_gpus(self, asked: int, environ: Mapping[str, str]) -> str:
        """CUDA_VISIBLE_DEVICES: none when none were asked for, else what Spark gave, else what there is."""
        if not asked:
            return "-1"
        return ",".join(self.gpus) or environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(asked))))
