"""What a model gives as Arrow columns; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfos_core.saved_model.binding import OutputBinding
from tfos_core.saved_model.types import depth_of, leaf_type

__all__ = ("to_column", "wrong_rows")

Array = npt.NDArray[Any]
_INT64_MAX = np.uint64(np.iinfo(np.int64).max)


def to_column(binding: OutputBinding, chunks: Sequence[Array]) -> Any:
    """One Arrow array of the results of several calls.

    Raises:
        pyarrow.ArrowInvalid: a text is not UTF-8; `wrong_rows` says which.
    """
    if len({chunk.shape[1:] for chunk in chunks}) == 1:
        return _column(binding.type, chunks[0] if len(chunks) == 1 else np.concatenate(chunks))
    if not chunks:
        return pa.array([], binding.type)
    return pa.concat_arrays([_column(binding.type, chunk) for chunk in chunks])


def wrong_rows(binding: OutputBinding, chunk: Array) -> dict[int, str]:
    """Rows of a call's result that the column's type can not hold, with the reason."""
    flat = chunk.reshape(len(chunk), -1)
    if chunk.dtype == np.uint64:
        bad = (flat > _INT64_MAX).any(axis=1)
        why = f"the output {binding.spec.name!r} is above {_INT64_MAX}, the largest that Spark's bigint holds"
        return {int(row): why for row in np.flatnonzero(bad)}
    if pa.types.is_string(leaf_type(binding.type)):
        why = f"the output {binding.spec.name!r} is not UTF-8 text; name it in binary_outputs"
        return {row: why for row, values in enumerate(flat) if not all(_is_text(value) for value in values)}
    return {}


def _column(kind: Any, values: Array) -> Any:
    depth = depth_of(kind)
    sizes = values.shape[1 : 1 + depth]
    counts = np.cumprod([len(values), *sizes])
    column = _leaf(leaf_type(kind), values.reshape(-1))
    kinds = [kind]
    while depth_of(kinds[-1]) > 1:
        kinds.append(kinds[-1].value_type)
    for level in range(depth, 0, -1):
        offsets = np.arange(counts[level - 1] + 1, dtype=np.int32) * np.int32(sizes[level - 1])
        column = pa.ListArray.from_arrays(pa.array(offsets), column, type=kinds[level - 1])
    return column


def _leaf(kind: Any, values: Array) -> Any:
    if pa.types.is_string(kind):
        return pa.array(values, pa.binary()).cast(kind)
    if pa.types.is_binary(kind):
        return pa.array(values, kind)
    return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind)


def _is_text(value: Any) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
