"""What bounds the feed: the same batches through tf.data, or as Python values, in one process, without Spark and our own code.

    python benchmarks/bounds.py [--rounds 5] [--batch 100]... [--shape NAME]...

Each shape's arrays lie in memory, already whole. Four ways to iterate over batches of them in Python:

* `slices`: `Dataset.from_tensor_slices` over an array with one more axis in front, so that each element is one batch: TensorFlow
  hands out slices of memory that it has, and Python gets eager tensors. Nothing that gives Python a batch can be faster;
* `generator`: `Dataset.from_generator` over stacks of 32 batches, cut apart by `flat_map`: the fewest calls into Python that arrays
  which arrive one after the other can make;
* `Python values`: NumPy makes the tuples and lists of Python numbers that `next_batch` gives, of which Spark alone makes none when
  it counts the batches of a DataFrame;
* `rows alone`: a plain loop over the arrays, without TensorFlow.

The rate is that of one process. With one process for each core, the sum over cores is the most that nodes can take if nothing
else wants the cores; Spark, which delivers the rows on the same ones, does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from report import Measurement, measure, print_table, write_results

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
_STACK = 32


def main() -> None:
    """Measure, print a table for each shape, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds of every way (default 5)")
    parser.add_argument("--batch", type=int, action="append", help="rows of a batch; repeatable (default 100 and 1000)")
    parser.add_argument("--shape", action="append", choices=list(_SHAPES), help="only this one; repeatable")
    options = parser.parse_args()
    measurements: list[Measurement] = []
    for name in options.shape or _SHAPES:
        for batch in options.batch or (100, 1000):
            measurements += _measure(name, batch, options.rounds)
    settings = {name: value for name, value in vars(options).items() if value is not None}
    print(f"\nwritten: {write_results('bounds', measurements, master='none', **settings)}")


def _ten(random: Any, rows: int) -> list[Any]:
    return [random.random(rows, dtype=np.float32) for _ in range(10)]


def _images(random: Any, rows: int) -> list[Any]:
    return [random.random((rows, 784), dtype=np.float32), np.arange(rows)]


def _texts(random: Any, rows: int) -> list[Any]:
    found = np.empty(rows, dtype=object)
    found[:] = [bytes(100)] * rows
    return [found]


#: How many rows, and their columns.
_SHAPES: dict[str, tuple[int, Callable[[Any, int], list[Any]]]] = {
    "ten columns": (640_000, _ten),
    "784 floats and a label": (64_000, _images),
    "strings of 100 bytes": (320_000, _texts),
}


def _measure(name: str, batch: int, rounds: int) -> list[Measurement]:
    rows, make = _SHAPES[name]
    rows -= rows % (batch * _STACK)
    columns = make(np.random.default_rng(1), rows)
    batches = [column.reshape(-1, batch, *column.shape[1:]) for column in columns]
    ways = {
        "slices": _slices(batches),
        "generator": _generator(batches),
        "Python values": _Values(batches),
        "rows alone": list(zip(*batches, strict=True)),
    }
    seen: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, iterable in ways.items():
            started = time.perf_counter()
            count = sum(1 for _ in iterable)
            if number:
                seen[way].append(rows / (time.perf_counter() - started))
            assert count == rows // batch
    case = f"{name}, batches of {batch}"
    found = [measure(case, way, rates) for way, rates in seen.items()]
    print_table(f"tf.data alone: {case}", [(each, None) for each in found])
    return found


class _Values:
    """Batches of rows that are tuples of Python values, made anew in every iteration."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[Any]]:
        for parts in zip(*self._batches, strict=True):
            yield list(zip(*(part.tolist() for part in parts), strict=True))


def _slices(batches: list[Any]) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(tuple(batches))


def _generator(batches: list[Any]) -> Any:
    import tensorflow as tf

    def stacks() -> Iterator[Any]:
        for start in range(0, len(batches[0]), _STACK):
            yield tuple(column[start : start + _STACK] for column in batches)

    signature = tuple(
        tf.TensorSpec([None, None, *column.shape[2:]], tf.string if column.dtype == object else column.dtype) for column in batches
    )
    dataset = tf.data.Dataset.from_generator(stacks, output_signature=signature)
    return dataset.flat_map(lambda *stack: tf.data.Dataset.from_tensor_slices(stack))


if __name__ == "__main__":
    main()
