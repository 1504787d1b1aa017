"""Blocks into rows, in the TensorFlow process. A decoded block is sliced, never walked row by row.

What rows look like: RDD rows arrive as they were (namedtuples and Rows included). DataFrame rows are tuples in column order, with
these values:

* null -> None; boolean, integers, floats, string, binary -> bool, int, float, str, bytes;
* date -> datetime.date; decimal -> decimal.Decimal;
* timestamp -> datetime with the session's time zone; timestamp_ntz -> datetime without one;
* an array of numbers without nulls -> a NumPy array (of two axes for arrays of arrays of one length); other arrays -> list;
* struct -> dict; map -> list of (key, value).
"""

from __future__ import annotations

import io
import itertools
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfos_core.errors import FeedError
from tfos_core.feed.numbers import NumbersBlock
from tfos_core.feed.packing import ALIGNMENT
from tfos_core.feed.scattered import Scattered
from tfos_core.feed.wire import Kind

__all__ = (
    "ArrowBlock",
    "Block",
    "ColumnsBlock",
    "RowsBlock",
    "arrow_column",
    "decode",
    "decode_plain",
    "decode_schema",
    "first_batches",
    "positions",
    "take_columns",
)

#: Rows of about as much become Python objects at once: some ten times the bytes, which the caches of a core still hold.
_BATCHES_BYTES = 32 << 10
#: Of record batches, so many values become Python objects at once, for the same reason.
_CHUNK_VALUES = 8 << 10


@dataclass(slots=True)
class RowsBlock:
    """A list of rows."""

    values: Sequence[Any]
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> list[Any]:
        """The rows from `start` up to `stop`."""
        rows = self.values[start:stop]
        return rows if isinstance(rows, list) else list(rows)


@dataclass(slots=True)
class ColumnsBlock:
    """Columns (arrays, scattered ones, and lists) of rows that are tuples or single values; `is_kept`: rows are copies."""

    is_tuple: bool
    columns: list[Any]
    names: tuple[str, ...] | None = None
    is_kept: bool = False
    _rows: list[Any] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def values(self, start: int, stop: int) -> list[Any]:
        """The columns of some rows, whose arrays the program may change."""
        self._gather()
        parts = [column[start:stop] for column in self.columns]
        return [part.copy() if isinstance(part, np.ndarray) else part for part in parts] if self.is_kept else parts

    def rows(self, start: int, stop: int) -> list[Any]:
        """The rows from `start` up to `stop`: views into the columns."""
        if self.is_kept:
            columns = self.values(start, stop)
            return list(zip(*columns, strict=True)) if self.is_tuple else list(columns[0])
        if self._rows is None:
            self._gather()
            self._rows = list(zip(*self.columns, strict=True)) if self.is_tuple else list(self.columns[0])
        return self._rows[start:stop]

    def _gather(self) -> None:
        self.columns = [column.gathered() if isinstance(column, Scattered) else column for column in self.columns]


@dataclass(slots=True)
class ArrowBlock:
    """A record batch; columns become NumPy or Python values on first use, some thousand at a time."""

    batch: Any
    _columns: dict[int, Any] = field(default_factory=dict, init=False)
    _numbers: list[Any] | None = field(default=None, init=False)
    _rows: list[Any] = field(default_factory=list, init=False)
    _first: int = field(default=0, init=False)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The DataFrame's columns."""
        return tuple(self.batch.schema.names)

    def column(self, index: int) -> Any:
        """One column as a sequence of row values."""
        if index not in self._columns:
            self._columns[index] = arrow_column(self.batch.column(index))
        return self._columns[index]

    def rows(self, start: int, stop: int) -> list[Any]:
        """The rows from `start` up to `stop`, as tuples in column order."""
        found: list[Any] = []
        stop = min(stop, len(self))
        while start < stop:
            if not self._first <= start < self._first + len(self._rows):
                self._make_rows(start, stop - start)
            part = self._rows[start - self._first : stop - self._first]
            found = found + part if found else part
            start += len(part)
        return found

    def _make_rows(self, start: int, least: int) -> None:
        """Rows from `start` on: few enough that the caches of a core hold what they are made of, and as many as are asked for."""
        count = max(least, _CHUNK_VALUES // max(1, self.batch.num_columns))
        if self._numbers is None:
            # Views of the whole block: making one takes longer than the values of some hundred rows.
            self._numbers = [_plain_numbers(column) for column in self.batch.columns]
        stop = start + count
        columns = [
            arrow_column(self.batch.column(index).slice(start, count)) if numbers is None else numbers[start:stop].tolist()
            for index, numbers in enumerate(self._numbers)
        ]
        self._first = start
        self._rows = list(zip(*columns, strict=True))


Block = RowsBlock | ColumnsBlock | ArrowBlock | NumbersBlock


def decode(kind: Kind, payload: Any, schema: Any = None) -> Block:
    """The rows of a block's payload (any writable buffer; arrays are views into it).

    Raises:
        FeedError: the rows can not be unpickled here, or a record batch comes before its schema.
    """
    return _decode(kind, payload, schema, pickle.loads)


def decode_plain(kind: Kind, payload: Any, schema: Any = None) -> tuple[Block, bool]:
    """As `decode`; and whether the rows are pickled objects of built-in types only."""
    loader = _Loader()
    block = _decode(kind, payload, schema, loader)
    return block, isinstance(block, RowsBlock) and loader.is_plain


class _Loader:
    """`pickle.loads` that notices whether anything else than Python's own types was loaded."""

    def __init__(self) -> None:
        self.is_plain = True

    def __call__(self, data: Any, **options: Any) -> Any:
        unpickler = _Unpickler(io.BytesIO(data), **options)
        loaded = unpickler.load()
        self.is_plain = self.is_plain and unpickler.is_plain
        return loaded


class _Unpickler(pickle.Unpickler):
    is_plain = True

    def find_class(self, module: str, name: str) -> Any:
        self.is_plain = False
        return super().find_class(module, name)


def _decode(kind: Kind, payload: Any, schema: Any, loads: Callable[..., Any]) -> Block:
    if kind is Kind.ARROW_BATCH:
        if schema is None:
            raise FeedError("a record batch came before its schema")
        import pyarrow as pa

        return ArrowBlock(pa.ipc.read_record_batch(pa.py_buffer(payload), schema))
    try:
        if kind is Kind.RAW_PICKLE:
            return RowsBlock(_raw_rows(memoryview(payload), loads))
        loaded = _load(memoryview(payload), loads)
    except (ImportError, AttributeError) as exc:
        raise FeedError(
            f"rows can not be unpickled on the node: {exc}",
            "Ship the module with the rows' class (spark.py_files), or feed plain tuples.",
        ) from exc
    if kind is Kind.PICKLE:
        return RowsBlock(loaded)
    is_tuple, columns = loaded
    return ColumnsBlock(is_tuple, columns)


def decode_schema(payload: Any) -> Any:
    """The Arrow schema of an ARROW_SCHEMA payload."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(payload))


def take_columns(block: Block, start: int, stop: int, wanted: tuple[str, ...]) -> list[Sequence[Any]]:
    """The columns `wanted` (in that order) of some rows, each a sequence of values.

    By name where rows have names (DataFrames, Rows); otherwise the i-th wanted column is the i-th field, which is what
    `df.select(sorted(input_mapping)).rdd` of 2022 produced.

    Raises:
        FeedError: a column is missing, or rows have another number of fields.
    """
    if isinstance(block, ArrowBlock):
        return [block.column(index)[start:stop] for index in positions(block.names, wanted)]
    if isinstance(block, ColumnsBlock) and block.is_tuple:
        _check_width(len(block.columns), wanted)
        return block.values(start, stop)
    if isinstance(block, NumbersBlock) and block.form.is_tuple:
        _check_width(len(block.arrays), wanted)
        return list(block.values(start, stop))
    rows = block.rows(start, stop)
    if not rows:
        return [() for _ in wanted]
    first = rows[0]
    if isinstance(first, dict):
        missing = [name for name in wanted if name not in first]
        if missing:
            raise FeedError(f"input_mapping names {missing[0]!r}, but rows have the keys {sorted(map(str, first))}")
        return [[row[name] for row in rows] for name in wanted]
    if not isinstance(first, tuple | list):
        _check_width(1, wanted)
        return [rows]
    named: Any = getattr(first, "__fields__", None) or getattr(first, "_fields", ())
    names = tuple(named)
    try:
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    except ValueError as exc:
        raise FeedError("rows have different numbers of fields, so input_mapping can not be applied") from exc
    if names and set(wanted) <= set(names):
        return [columns[index] for index in positions(names, wanted)]
    _check_width(len(columns), wanted)
    return columns


def arrow_column(column: Any) -> Any:
    """Row values of an Arrow array: see the module's docstring for the forms."""
    numbers = _plain_numbers(column)
    if numbers is not None:
        return numbers.tolist()
    nested = _nested_numbers(column) if column.null_count == 0 else None
    return column.to_pylist() if nested is None else nested


def _plain_numbers(column: Any) -> Any:
    """An array of a column of numbers without nulls; else None."""
    import pyarrow as pa

    is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    return column.to_numpy(zero_copy_only=False) if is_number and column.null_count == 0 else None


def _nested_numbers(column: Any) -> Any:
    """A matrix, or a list of arrays, for lists of numbers without nulls; else None."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or len(column) == 0:
        return None
    values = column.flatten()
    if values.null_count or column.null_count:
        return None
    inner: Any
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        inner = values.to_numpy(zero_copy_only=False)
    else:
        inner = _nested_numbers(values)
        if not isinstance(inner, np.ndarray):
            return None
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    lengths = np.diff(offsets)
    if lengths[0] > 0 and (lengths == lengths[0]).all():
        return inner.reshape(len(column), int(lengths[0]), *inner.shape[1:])
    return np.split(inner, (offsets - offsets[0])[1:-1])


def first_batches(payload: Any, least_bytes: int = _BATCHES_BYTES) -> int:
    """How many bytes of a RAW_PICKLE payload the fewest of its batches take that have at least `least_bytes` together."""
    position = 0
    while position < min(len(payload), least_bytes):
        position += 4 + struct.unpack_from("!I", payload, position)[0]
    return position


def _raw_rows(payload: memoryview, loads: Callable[..., Any]) -> Sequence[Any]:
    frames = []
    position = 0
    while position < len(payload):
        (length,) = struct.unpack_from("!I", payload, position)
        position += 4
        # As pyspark's own deserialiser does.
        frames.append(loads(payload[position : position + length], encoding="bytes"))
        position += length
    return frames[0] if len(frames) == 1 else list(itertools.chain.from_iterable(frames))


def _load(payload: memoryview, loads: Callable[..., Any]) -> Any:
    (count,) = struct.unpack_from("!I", payload, 0)
    sizes = struct.unpack_from(f"!{count}Q", payload, 4)
    position = 4 + 8 * count
    parts = []
    for size in sizes:
        position += -position % ALIGNMENT
        parts.append(payload[position : position + size])
        position += size
    return loads(parts[0], buffers=parts[1:])


def positions(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[int]:
    """Where the wanted columns are.

    Raises:
        FeedError: one is not there.
    """
    missing = [name for name in wanted if name not in names]
    if missing:
        raise FeedError(f"input_mapping names {missing[0]!r}, but the rows have the columns {list(names)}")
    return [names.index(name) for name in wanted]


def _check_width(width: int, wanted: tuple[str, ...]) -> None:
    if width != len(wanted):
        raise FeedError(
            f"input_mapping names {len(wanted)} columns, but a row has {width} fields",
            "Select exactly the mapped columns, in lexicographic order of their names.",
        )
