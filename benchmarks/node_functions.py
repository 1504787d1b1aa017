"""What our side runs on a node; imported by name on executors."""

from __future__ import annotations

from typing import Any

__all__ = ("consume_batches", "consume_datasets", "end_at_once")


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


def end_at_once(args: Any, ctx: Any) -> None:
    """A node whose work is done when it starts."""
