"""What Spark runs for every partition: Arrow in, the model, Arrow out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tfos_core.saved_model.binding import Binding
from tfos_core.saved_model.coerce import Piece, prepare
from tfos_core.saved_model.errors import RowRejectedError
from tfos_core.saved_model.location import ModelRef
from tfos_core.saved_model.results import to_column
from tfos_core.saved_model.runtime import LoadedModel, load_model

__all__ = ("InferTask",)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferTask:
    """For `mapInArrow`: kept columns, then outputs, one row per row."""

    model: ModelRef
    binding: Binding
    batch_size: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        model: LoadedModel | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if model is None:
                model = load_model(self.model, threads=_task_cores())
            yield self._predict(model, batch)

    def _predict(self, model: LoadedModel, batch: Any) -> Any:
        pieces, rejected = prepare(batch, self.binding.inputs)
        if rejected:
            row, why = min(rejected.items())
            raise RowRejectedError(f"row {row}: {why}")
        chunks: dict[str, list[Any]] = {one.spec.name: [] for one in self.binding.outputs}
        for piece in pieces:
            for results in self._calls(model, piece):
                for name, values in results.items():
                    chunks[name].append(values)
        columns = [batch.column(name) for name in self.binding.keep]
        columns += [to_column(one, chunks[one.spec.name]) for one in self.binding.outputs]
        names = [*self.binding.keep, *(one.column for one in self.binding.outputs)]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _calls(self, model: LoadedModel, piece: Piece) -> Iterator[dict[str, Any]]:
        outputs = [one.spec.name for one in self.binding.outputs]
        for start in range(0, len(piece.rows), self.batch_size):
            stop = min(start + self.batch_size, len(piece.rows))
            yield model.call({name: array[start:stop] for name, array in piece.arrays.items()}, stop - start, outputs)


def _task_cores() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return max(1, int(context.cpus())) if context is not None else 1
