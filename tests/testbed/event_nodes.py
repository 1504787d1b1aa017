"""Functions that write TensorBoard event files on nodes; executors import them by name. `args` is a dict, see `nodes`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from testbed.nodes import note
from testbed.waiting import poll_until

__all__ = ("STEPS", "loss_at", "write_and_end", "write_scalars")

STEPS = 5


def loss_at(step: int, worker: int) -> float:
    """What `write_scalars` writes."""
    return float(worker + 1) / (step + 1)


def write_scalars(args: dict[str, Any], ctx: Any) -> None:
    """Write the losses of all steps but the last, and the last when the test lets it."""
    import tensorflow as tf

    with tf.summary.create_file_writer(f"{ctx.log_dir}/train").as_default() as writer:
        for step in range(STEPS):
            if step == STEPS - 1:
                writer.flush()
                note(args, ctx, log_dir=ctx.log_dir)
                poll_until((Path(args["folder"]) / "go").exists, 120, what="the test has looked")
            tf.summary.scalar("loss", loss_at(step, ctx.worker_index), step=step)


def write_and_end(args: dict[str, Any], ctx: Any) -> None:
    """Write a file that looks like one of TensorBoard's, and then end, fail (`args["failing"]` nodes) or stay."""
    path = Path(ctx.log_dir) / "train" / "events.out.tfevents.1.host.1"
    path.parent.mkdir(parents=True)
    path.write_bytes(f"written by {ctx.job_name}:{ctx.task_index}".encode())
    note(args, ctx)
    if ctx.executor_id in args.get("failing", ()):
        raise ValueError(f"no column 'label' on {ctx.job_name}:{ctx.task_index}")
    if args.get("stays"):
        time.sleep(300)
