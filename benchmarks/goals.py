"""What the measurements have to come to: how many times as good one side is as another, and what a number may be at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ("GOALS", "LIMITS", "Goal", "Limit")

ROWS = "rows/s"
_UPSTREAM = "upstream 2.2.5"
_TFRECORD = "3 scalars and 100 floats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`side` is at least `at_least` times as good as `base`; None where only the ratio is told.

    Rounds of both sides are taken in turn, so each round of one has its partner. With a unit of something a second more is better;
    with every other unit less is. The case `*` is every case.
    """

    benchmark: str
    case: str
    side: str
    base: str
    at_least: float | None = None
    unit: str = ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The median of `side` is at most `at_most`."""

    benchmark: str
    case: str
    side: str
    unit: str
    at_most: float


#: Shapes of rows, and how many times as fast as 2.2.5 the feed has to be with them.
_SHAPES: dict[str, float | None] = {
    "tuples of 10 floats": 200,
    "lists of 784 floats + label": 12,
    "NumPy arrays of 784 floats": None,
    "DataFrame, 10 float columns": None,
    "DataFrame, array<float> of 784": 20,
    "DataFrame, binary of 3 KB": None,
    "strings of 100 characters": None,
}


def _feed() -> Iterator[Goal]:
    for shape, times in _SHAPES.items():
        for way in ("next_batch", "as_dataset", "as_dataset in tf.function"):
            yield Goal(benchmark="feed", case=shape, side=f"ours, {way}", base=f"Spark alone ({way})", at_least=0.9)
            yield Goal(benchmark="feed", case=shape, side=f"ours, {way}", base=f"by hand ({way})")
            yield Goal(benchmark="feed", case=shape, side=f"ours, {way}", base=_UPSTREAM, at_least=times)


def _rest() -> Iterator[Goal]:
    for way in ("next_batch", "as_dataset", "as_dataset in tf.function"):
        yield Goal(benchmark="cache", case="*", side=f"cached epochs, {way}", base=f"Spark alone ({way})", at_least=5)
    yield Goal(benchmark="equal_steps", case="*", side="as_dataset, equal_steps", base="as_dataset", at_least=0.98)
    for side in ("fed by Spark", "from the nodes' caches"):
        yield Goal(benchmark="end_to_end", case="*", side=side, base="plain tf.distribute", at_least=0.9, unit="samples/s")
    for case in ("10 floats", "784 floats and a label"):
        for side in ("ctx.dataset, TFRecord", "ctx.dataset, Parquet"):
            yield Goal(benchmark="direct_reading", case=case, side=side, base="tf.data by hand, TFRecord", at_least=1.0)
        yield Goal(benchmark="direct_reading", case=case, side="ctx.dataset, Parquet", base="pyarrow alone, Parquet")
        for kind in ("TFRecord", "Parquet"):
            yield Goal(benchmark="direct_reading", case=case, side=f"ctx.dataset, {kind}", base=f"fed by Spark, {kind}")
    for case in ("columns10", "array784"):
        yield Goal(benchmark="inference", case=case, side="infer_dataframe", base="predict_batch_udf", at_least=1.0)
    for case in ("tuples of 10 floats", "lists of 784 floats + label"):
        yield Goal(benchmark="cluster_inference", case=case, side="TFCluster.inference", base=_UPSTREAM)
        yield Goal(benchmark="cluster_inference", case=case, side="TFCluster.inference", base="Spark alone")
    for case in ("codec", "Spark"):
        for what in ("write", "read"):
            for base, at_least in (("2.2.5", 10), ("one Example a row", 10 if case == "codec" else None)):
                yield Goal(
                    benchmark="tfrecords",
                    case=f"{_TFRECORD}, {case}",
                    side=f"{what}, ours",
                    base=f"{what}, {base}",
                    at_least=at_least,
                )
    for case in ("first start", "start", "shutdown"):
        yield Goal(benchmark="lifecycle", case=case, side="ours", base=_UPSTREAM, unit="s")
    yield Goal(benchmark="control", case="1,000 nodes register", side="ours", base=_UPSTREAM, unit="s")
    for unit in ("CPU s of the server", "MiB sent", "MiB of the server"):
        yield Goal(benchmark="control", case="1,000 nodes register", side="ours", base=_UPSTREAM, unit=unit)


GOALS = (*_feed(), *_rest())
LIMITS = (
    Limit(benchmark="control", case="1,000 nodes, cost of the driver", side="idle", unit="% of a core", at_most=5),
    Limit(benchmark="control", case="1,000 nodes, cost of the driver", side="training", unit="% of a core", at_most=5),
    Limit(benchmark="launcher", case="tfos --help", side="ours", unit="CPU s", at_most=0.3),
    Limit(benchmark="launcher", case="a job that does nothing", side="added by tfos train", unit="s", at_most=0.3),
    Limit(benchmark="launcher", case="a job that does nothing", side="the tfos process", unit="CPU s", at_most=0.5),
)
