"""Rows a second through a SavedModel: `infer_dataframe` against Spark's own `predict_batch_udf`, in alternating rounds of one run.

    python benchmarks/inference.py [--rounds 7] [--case columns10|array784] [--batch-size 128]

Both sides load the same SavedModel (one dense layer, written at the start), call the same signature with the same number of rows,
and read the same cached DataFrame on the same two executors; results go to `noop`. `predict_batch_udf` gets what its documentation
recommends: a prediction function that closes over the loaded model, and the shape of the tensor. Two cases:

* columns10: ten columns of type float, which become one tensor [?, 10];
* array784: a column array<float> of 784, which becomes a tensor [?, 784].

The first round of each side warms up (Python workers start and load the model) and is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from report import Measurement, measure, print_table, write_results
from session import MASTER, start_spark

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
_MODELS = """
import sys
import numpy as np
import tensorflow as tf

class Layer(tf.Module):
    def __init__(self, size):
        self.w = tf.Variable(np.random.default_rng(1).random((size, 10), np.float32))
        self.call = tf.function(
            lambda x: {"y": tf.nn.softmax(x @ self.w)}, input_signature=[tf.TensorSpec([None, size], tf.float32, name="x")]
        )

for size in (10, 784):
    layer = Layer(size)
    tf.saved_model.save(layer, f"{sys.argv[1]}/{size}", signatures=layer.call)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A DataFrame, and how many numbers a row has; several columns when `is_wide`."""

    name: str
    size: int
    rows: int
    is_wide: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(f"c{number}" for number in range(self.size)) if self.is_wide else ("x",)


CASES = (
    Case(name="columns10", size=10, rows=2_000_000, is_wide=True),
    Case(name="array784", size=784, rows=120_000, is_wide=False),
)


def main() -> None:
    """Run the cases, print a table for each, and write the results."""
    options = _parse()
    measurements: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="inference-") as folder:
        subprocess.run([sys.executable, "-c", _MODELS, folder], check=True)
        with start_spark() as spark:
            for case in CASES:
                if options.case in (None, case.name):
                    measurements += _compare(spark, case, f"{folder}/{case.size}", options)
    print(f"\nwritten: {write_results('inference', measurements, master=MASTER, **vars(options))}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds of every side (default 7)")
    parser.add_argument("--case", choices=[case.name for case in CASES], help="one case only")
    parser.add_argument("--batch-size", type=int, default=128, help="rows per call of the model (default 128)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows (default 1)")
    return parser.parse_args()


def _compare(spark: Any, case: Case, model: str, options: argparse.Namespace) -> list[Measurement]:
    rows = int(case.rows * options.scale)
    df = _data(spark, case, rows)
    sides: dict[str, Callable[[], Any]] = {
        "predict_batch_udf": lambda: _theirs(df, case, model, options.batch_size),
        "infer_dataframe": lambda: _ours(df, case, model, options.batch_size),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(options.rounds + 1):
        for side, make in sides.items():
            result = make()
            start = time.perf_counter()
            result.write.format("noop").mode("overwrite").save()
            if number:
                rates[side].append(rows / (time.perf_counter() - start))
    df.unpersist()
    theirs, ours = (measure(case.name, side, rates[side]) for side in sides)
    print_table(f"{case.name}, {rows} rows, {options.batch_size} a call", [(theirs, None), (ours, theirs)])
    pairs = [mine / other for mine, other in zip(rates["infer_dataframe"], rates["predict_batch_udf"], strict=True)]
    print(f"  ratio of pairs: median {statistics.median(pairs):.2f}, least {min(pairs):.2f}, most {max(pairs):.2f}")
    return [theirs, ours]


def _data(spark: Any, case: Case, rows: int) -> Any:
    from pyspark.sql import functions as f

    ids = spark.range(0, rows, 1, 4)
    if case.is_wide:
        df = ids.select(*((f.rand(seed) * 10).cast("float").alias(name) for seed, name in enumerate(case.columns)))
    else:
        numbers = f.transform(f.sequence(f.lit(1), f.lit(case.size)), lambda i: ((f.col("id") * i) % 97).cast("float"))
        df = ids.select(numbers.alias("x"))
    df = df.cache()
    assert df.count() == rows
    return df


def _ours(df: Any, case: Case, model: str, batch_size: int) -> Any:
    from tfos_core.saved_model import InferenceSettings, infer_dataframe

    mapping = dict.fromkeys(case.columns, "x")
    return infer_dataframe(df, InferenceSettings(export_dir=model, input_mapping=mapping, batch_size=batch_size))


def _theirs(df: Any, case: Case, model: str, batch_size: int) -> Any:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, FloatType

    answer = predict_batch_udf(
        MakePredict(model),
        return_type=ArrayType(FloatType()),
        batch_size=batch_size,
        input_tensor_shapes=[[case.size]],
    )
    # Several columns for one tensor have to be combined first: "use `array` to combine columns into tensors", it says.
    return df.select(answer(f.array(*case.columns) if case.is_wide else f.col("x")).alias("y"))


@dataclass(frozen=True, slots=True)
class MakePredict:
    """Loads the model once per Python worker, and gives the function that predicts a batch."""

    model: str

    def __call__(self) -> Callable[[Any], Any]:
        import tensorflow as tf

        signature = tf.saved_model.load(self.model).signatures["serving_default"]
        return lambda inputs: signature(x=tf.convert_to_tensor(inputs, tf.float32))["y"].numpy()


if __name__ == "__main__":
    main()
