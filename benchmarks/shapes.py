"""The rows that are fed: made the same way for every side, from Spark and NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ("SHAPES", "Shape", "build")

_CHUNK = 1000
_BYTES = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of row. `upstream_rows` is smaller, because upstream takes hundreds of times as long for a row.

    There are so many that a round lasts seconds: a Spark job takes 0.2 s whatever it does.

    `schema` is that of a DataFrame; without one the rows are an RDD. `batch` is how many rows a program takes at a time.
    """

    name: str
    shown: str
    rows: int
    upstream_rows: int
    schema: str = ""
    batch: int = 100

    @property
    def is_dataframe(self) -> bool:
        """Whether rows are a DataFrame's."""
        return bool(self.schema)


COLUMNS = ", ".join(f"c{number} float" for number in range(10))
SHAPES = (
    Shape(name="tuple10", shown="tuples of 10 floats", rows=5_000_000, upstream_rows=16_000, batch=1000),
    Shape(name="list784", shown="lists of 784 floats + label", rows=100_000, upstream_rows=6_000),
    Shape(name="numpy784", shown="NumPy arrays of 784 floats", rows=200_000, upstream_rows=8_000),
    Shape(name="frame10", shown="DataFrame, 10 float columns", rows=5_000_000, upstream_rows=16_000, schema=COLUMNS, batch=1000),
    Shape(
        name="frame784",
        shown="DataFrame, array<float> of 784",
        rows=160_000,
        upstream_rows=6_000,
        schema="image array<float>, label long",
    ),
    Shape(name="binary", shown="DataFrame, binary of 3 KB", rows=200_000, upstream_rows=8_000, schema="data binary"),
    Shape(name="strings", shown="strings of 100 characters", rows=3_000_000, upstream_rows=16_000, batch=1000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Makes the rows of one partition; callable, so that it pickles by reference."""

    shape: str
    per_partition: int

    def __call__(self, partition: int) -> Iterator[Any]:
        import numpy as np

        random = np.random.default_rng(partition)
        for start in range(0, self.per_partition, _CHUNK):
            yield from _MAKERS[self.shape](random, min(_CHUNK, self.per_partition - start))


def _tuples(random: Any, size: int) -> Iterator[Any]:
    return map(tuple, random.random((size, 10), dtype="float32").tolist())


def _lists(random: Any, size: int) -> Iterator[Any]:
    return ((values, number % 10) for number, values in enumerate(random.random((size, 784), dtype="float32").tolist()))


def _arrays(random: Any, size: int) -> Iterator[Any]:
    return (values.copy() for values in random.random((size, 784), dtype="float32"))


def _bytes(random: Any, size: int) -> Iterator[Any]:
    return ((bytearray(random.bytes(_BYTES)),) for _ in range(size))


def _strings(random: Any, size: int) -> Iterator[Any]:
    return (values.tobytes().decode() for values in random.integers(97, 123, (size, 100), dtype="uint8"))


_MAKERS: dict[str, Callable[[Any, int], Iterator[Any]]] = {
    "tuple10": _tuples,
    "list784": _lists,
    "numpy784": _arrays,
    "frame10": _tuples,
    "frame784": _lists,
    "binary": _bytes,
    "strings": _strings,
}


def build(spark: Any, shape: Shape, rows: int, partitions: int) -> Any:
    """A cached, materialised RDD or DataFrame with `rows` rows, so that every round starts from the same place."""
    maker = Rows(shape=shape.name, per_partition=rows // partitions)
    rdd = spark.sparkContext.parallelize(range(partitions), partitions).flatMap(maker)
    data = spark.createDataFrame(rdd, shape.schema, verifySchema=False) if shape.is_dataframe else rdd
    cached = data.cache()
    counted = cached.count()
    assert counted == rows, f"{counted} rows made, {rows} asked"
    return cached
