"""The rows that are fed: made the same way for every side, from Spark and NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ("SHAPES", "Shape", "build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of row. `upstream_rows` is smaller, because upstream takes hundreds of times as long for a row."""

    name: str
    shown: str
    rows: int
    upstream_rows: int
    is_dataframe: bool = False


SHAPES = (
    Shape(name="tuple10", shown="tuples of 10 floats", rows=2_000_000, upstream_rows=20_000),
    Shape(name="list784", shown="lists of 784 floats + label", rows=48_000, upstream_rows=8_000),
    Shape(name="frame784", shown="DataFrame, array<float> of 784", rows=64_000, upstream_rows=8_000, is_dataframe=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Makes the rows of one partition; callable, so that it pickles by reference."""

    shape: str
    per_partition: int

    def __call__(self, partition: int) -> Iterator[Any]:
        import numpy as np

        random = np.random.default_rng(partition)
        width = 10 if self.shape == "tuple10" else 784
        for start in range(0, self.per_partition, 1000):
            size = min(1000, self.per_partition - start)
            for values in random.random((size, width), dtype=np.float32).tolist():
                yield tuple(values) if self.shape == "tuple10" else (values, partition % 10)


def build(spark: Any, shape: Shape, rows: int, partitions: int) -> Any:
    """A cached, materialised RDD or DataFrame with `rows` rows, so that every round starts from the same place."""
    maker = Rows(shape=shape.name, per_partition=rows // partitions)
    rdd = spark.sparkContext.parallelize(range(partitions), partitions).flatMap(maker)
    data = spark.createDataFrame(rdd, "image array<float>, label long") if shape.is_dataframe else rdd
    cached = data.cache()
    counted = cached.count()
    assert counted == rows, f"{counted} rows made, {rows} asked"
    return cached
