"""What our side runs on a node; imported by name on executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ("answer_batches", "compiled_count", "consume_batches", "consume_datasets", "consume_inside", "end_at_once")


def consume_batches(args: Any, ctx: Any) -> None:
    """Take rows with `next_batch` and forget them."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(args["batch_size"])


def consume_datasets(args: Any, ctx: Any) -> None:
    """Iterate datasets and forget the batches."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        for _ in feed.as_dataset(args["batch_size"]):
            pass


def consume_inside(args: Any, ctx: Any) -> None:
    """Iterate datasets inside a compiled function, as training does, and forget the batches."""
    count = compiled_count()
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        count(feed.as_dataset(args["batch_size"]))


def compiled_count() -> Callable[[Any], Any]:
    """A compiled function that iterates a dataset, and gives the number of its batches."""
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def count(dataset: Any) -> Any:
        batches = tf.constant(0, tf.int64)
        for _ in dataset:
            batches += 1
        return batches

    return count  # type: ignore[no-any-return]


def answer_batches(args: Any, ctx: Any) -> None:
    """Answer every row with its last value."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        rows = feed.next_batch(args["batch_size"])
        if rows:
            feed.batch_results([row[-1] for row in rows])


def end_at_once(args: Any, ctx: Any) -> None:
    """A node whose work is done when it starts."""
