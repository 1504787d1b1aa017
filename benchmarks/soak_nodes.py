"""What the nodes of the soak run: quick, without TensorFlow; executors and `tfos train` import it by name."""

from __future__ import annotations

import os
import signal
from typing import Any

__all__ = ("answer", "consume", "end_at_once", "fail", "fail_in_the_middle", "kill_itself", "main_fun", "rows")


def consume(args: Any, ctx: Any) -> None:
    """Take all rows."""
    feed = ctx.get_data_feed()
    while not feed.should_stop():
        feed.next_batch(50)


def answer(args: Any, ctx: Any) -> None:
    """Answer every row with itself."""
    feed = ctx.get_data_feed(train_mode=False)
    while not feed.should_stop():
        batch = feed.next_batch(50)
        if batch:
            feed.batch_results(batch)


def end_at_once(args: Any, ctx: Any) -> None:
    """A node that reads for itself, and has read everything."""


def fail(args: Any, ctx: Any) -> None:
    """A bug before the first row, on one node."""
    if ctx.task_index == 1:
        raise ValueError("no column 'label'")
    consume(args, ctx)


def fail_in_the_middle(args: Any, ctx: Any) -> None:
    """A bug between rows, on one node."""
    feed = ctx.get_data_feed()
    feed.next_batch(10)
    if ctx.task_index == 0:
        raise ValueError("no column 'label'")
    consume(args, ctx)


def kill_itself(args: Any, ctx: Any) -> None:
    """A process that is killed, as by a host that is out of memory."""
    if ctx.task_index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    consume(args, ctx)


def rows(spark: Any, args: Any) -> Any:
    """Data of `tfos train`: `data.source` of the job's spec."""
    return spark.sparkContext.parallelize(range(200), 4)


def main_fun(args: Any, ctx: Any) -> None:
    """The entrypoint of the job's spec."""
    consume(args, ctx)
    print("all rows were taken")
